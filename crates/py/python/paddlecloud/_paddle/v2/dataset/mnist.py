"""Handwritten digits: images of 28 × 28 values from -1 to 1, and the digit."""

import gzip

import numpy

from paddle.v2.dataset import common

__all__ = ["convert", "fetch", "test", "train"]

URL_PREFIX = "http://yann.lecun.com/exdb/mnist/"
# Images and labels of both parts, each with the MD5 of the original file.
TRAIN = (
    ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
)
TEST = (
    ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
)

_IMAGES, _LABELS = 0x803, 0x801


def train():
    """A reader of (784 values, digit)."""
    return _reader(TRAIN)


def test():
    """The same for the images kept for testing."""
    return _reader(TEST)


def fetch():
    """Makes sure that all files exist."""
    for name, md5 in (*TRAIN, *TEST):
        common.download(URL_PREFIX + name, "mnist", md5)


def convert(path):
    """Writes both parts as RecordIO, under the names of 2017."""
    common.convert(path, train(), 1000, "minist_train")
    common.convert(path, test(), 1000, "minist_test")


def _reader(part):
    def reader():
        (images_name, images_md5), (labels_name, labels_md5) = part
        images = _load(common.download(URL_PREFIX + images_name, "mnist", images_md5), _IMAGES)
        labels = _load(common.download(URL_PREFIX + labels_name, "mnist", labels_md5), _LABELS)
        if len(images) != len(labels):
            raise ValueError(f"`{images_name}` has {len(images)} images and `{labels_name}` {len(labels)} labels")
        for image, label in zip(images, labels):
            yield image.reshape(-1).astype(numpy.float32) / 255.0 * 2.0 - 1.0, int(label)

    return reader


def _load(name, kind):
    """The array in a file of the IDX format: kind, sides, bytes."""
    with gzip.open(name) as file:
        data = file.read()
    found = int.from_bytes(data[:4], "big")
    if found != kind:
        raise ValueError(f"`{name}` is not an IDX file of the expected kind: it begins with {found:#x}, not {kind:#x}")
    count = kind & 0xFF
    sides = [int.from_bytes(data[4 + 4 * side : 8 + 4 * side], "big") for side in range(count)]
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * count).reshape(sides)
