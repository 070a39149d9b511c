"""Writes a reader's samples to one text file, a line each, for all trainers to share.

    python prepare.py [FOLDER]    # in this folder, before the job is submitted
    paddlectl submit -pservers 0 -entry "python prepare.py /pfs/DATACENTER/home/USER/ngrams" examples/dist_reader

`dataset_from_reader` is that of the guide.
"""

import os
import sys

SAMPLES = 50


def dataset_from_reader(filename, reader):
    with open(filename, "w") as fn:
        for batch_id, batch_data in enumerate(reader()):
            batch_data_str = [str(d) for d in batch_data]
            fn.write(",".join(batch_data_str))
            fn.write("\n")


def ngrams():
    """Windows of four numbers, as a text of numbered words would give."""
    for first in range(SAMPLES):
        yield tuple(range(first, first + 4))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    os.makedirs(folder, exist_ok=True)
    dataset_from_reader(os.path.join(folder, "train.csv"), ngrams)
    print("%d samples in %s" % (SAMPLES, folder))


if __name__ == "__main__":
    main()
