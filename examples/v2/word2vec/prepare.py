"""Writes a corpus in the layout of the Penn Treebank archive: `python prepare.py [folder]`.

The folder is used as DATA_HOME. Each word follows from the two before it: its class is the sum of their classes, so that neither of the two alone
says anything about it. The best possible cost is the entropy of the choice within a class, which is printed.
"""

import io
import os
import sys
import tarfile

import numpy as np

CLASSES = 5
WORDS_PER_CLASS = 8
TRAIN_SENTENCES = 3000
VALID_SENTENCES = 300


def chances():
    """Words of a class are not equally frequent."""
    ranks = 1.0 / np.arange(1, WORDS_PER_CLASS + 1)
    return ranks / ranks.sum()


def entropy():
    """Mean uncertainty of a word whose class is known, in nats."""
    p = chances()
    return float(-(p * np.log(p)).sum())


def sentences(source, count):
    p = chances()
    for _ in range(count):
        kinds = list(source.integers(0, CLASSES, 2))
        for _ in range(int(source.integers(8, 17))):
            kinds.append((kinds[-1] + kinds[-2]) % CLASSES)
        yield " ".join(f"w{kind}{source.choice(WORDS_PER_CLASS, p=p)}" for kind in kinds)


def main(folder):
    source = np.random.default_rng(20170515)
    os.makedirs(os.path.join(folder, "imikolov"), exist_ok=True)
    path = os.path.join(folder, "imikolov", "simple-examples.tgz")
    with tarfile.open(path, "w:gz") as archive:
        for part, count in (("train", TRAIN_SENTENCES), ("valid", VALID_SENTENCES)):
            text = "".join(f"{line}\n" for line in sentences(source, count)).encode()
            info = tarfile.TarInfo(f"./simple-examples/data/ptb.{part}.txt")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    print(f"wrote {TRAIN_SENTENCES + VALID_SENTENCES} sentences to {path}; a word has {entropy():.3f} nats where its class is known")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
