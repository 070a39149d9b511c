"""Writes a reader's samples to one text file, a line each, for all trainers to share.

Run it in this folder before the job is submitted. `dataset_from_reader` is that of the guide.
"""

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


if __name__ == "__main__":
    dataset_from_reader("train.csv", ngrams)
