"""Writes handwritten digits in the layout of the MNIST files: `python prepare.py [folder]`.

The folder is used as DATA_HOME. The digits are the 1,797 of scikit-learn, 8 × 8 pixels each, enlarged to 28 × 28. Every sixth is for testing.
"""

import gzip
import os
import struct
import sys

import numpy as np
from sklearn.datasets import load_digits


def enlarge(image, side=20, margin=4):
    """An image of `side` pixels between the given ones, with the margin that MNIST has."""
    places = np.linspace(0, len(image) - 1, side)
    rows = np.array([np.interp(places, np.arange(len(image)), row) for row in image])
    both = np.array([np.interp(places, np.arange(len(image)), column) for column in rows.T]).T
    return np.pad(both / 16 * 255, margin).astype(np.uint8)


def write(folder, part, images, labels):
    with gzip.open(os.path.join(folder, f"{part}-images-idx3-ubyte.gz"), "wb") as file:
        file.write(struct.pack(">IIII", 0x803, len(images), 28, 28) + images.tobytes())
    with gzip.open(os.path.join(folder, f"{part}-labels-idx1-ubyte.gz"), "wb") as file:
        file.write(struct.pack(">II", 0x801, len(labels)) + labels.astype(np.uint8).tobytes())


def main(folder):
    digits = load_digits()
    images = np.array([enlarge(image) for image in digits.images])
    is_test = np.arange(len(images)) % 6 == 5
    folder = os.path.join(folder, "mnist")
    os.makedirs(folder, exist_ok=True)
    write(folder, "train", images[~is_test], digits.target[~is_test])
    write(folder, "t10k", images[is_test], digits.target[is_test])
    print(f"wrote {(~is_test).sum()} digits for training and {is_test.sum()} for testing to {folder}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
