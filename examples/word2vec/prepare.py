#!/usr/bin/env python3
"""Writes the data set imikolov as text, for all trainers to share: each line is a 5-gram of word numbers.

    ./example/word2vec/prepare.py [FOLDER]    # `train.csv` and `test.csv`; default: data

The archive is the one in DATA_HOME, else it is fetched. If that fails, a generated text takes its place. Each trainer
reads its own lines with `dist_reader`, see examples/dist_reader/train.py.
"""

import os
import sys

import paddle.v2.dataset.imikolov as imikolov
from text import WORDS, text

N = 5


def dataset_from_reader(filename, reader):
    with open(filename, "w") as fn:
        for batch_id, batch_data in enumerate(reader()):
            batch_data_str = [str(d) for d in batch_data]
            fn.write(",".join(batch_data_str))
            fn.write("\n")


def penn_treebank():
    """Readers of the training and the validation text, and the number of words."""
    word_idx = imikolov.build_dict()
    return imikolov.train(word_idx, N), imikolov.test(word_idx, N), len(word_idx)


def generated():
    """The same of a text that anyone can have."""

    def windows(length, seed):
        def reader():
            words = text(length, seed).tolist()
            for end in range(N, len(words) + 1):
                yield tuple(words[end - N : end])

        return reader

    return windows(100_000, seed=0), windows(10_000, seed=1_000), WORDS


def readers():
    try:
        imikolov.fetch()
    except RuntimeError as error:
        print(f"note: {error}", file=sys.stderr)
        print("note: a generated text takes its place", file=sys.stderr)
        return generated()
    return penn_treebank()


def main(folder):
    train, test, words = readers()
    os.makedirs(folder, exist_ok=True)
    dataset_from_reader(os.path.join(folder, "train.csv"), train)
    dataset_from_reader(os.path.join(folder, "test.csv"), test)
    print(f"wrote {N}-grams of {words} words to {folder}/train.csv and {folder}/test.csv")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
