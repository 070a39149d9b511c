"""Makes the data set of this example: 95 samples in RecordIO files of ten. Needs the wheel `paddlecloud`.

    python prepare.py [FOLDER]    # in this folder, before the job is submitted
    paddlectl submit -pservers 0 -entry "python prepare.py /pfs/DATACENTER/home/USER/squares" examples/recordio_reader
"""

import os
import sys

import paddle.v2.dataset as dataset

SAMPLES = 95


def samples():
    """Numbers and their squares: a trainer can tell whether it has read all of its share."""
    for number in range(SAMPLES):
        yield number, number * number


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "./dataset"
    dataset.common.convert(output_path = folder,
                reader = samples,
                line_count = 10,
                name_prefix = "squares_train")
    print("\n".join(sorted(os.listdir(folder))))


if __name__ == "__main__":
    main()
