"""Makes the data set of this example: 95 samples in RecordIO files of ten.

Run it in this folder before the job is submitted. Needs the wheel `paddlecloud`.
"""

import os

import paddle.v2.dataset as dataset

SAMPLES = 95


def samples():
    """Numbers and their squares: a trainer can tell whether it has read all of its share."""
    for number in range(SAMPLES):
        yield number, number * number


def main():
    dataset.common.convert(output_path = "./dataset",
                reader = samples,
                line_count = 10,
                name_prefix = "squares_train")
    print("\n".join(sorted(os.listdir("./dataset"))))


if __name__ == "__main__":
    main()
