"""Boston housing: 13 features of a place, and what houses cost there.

Features are scaled by their mean and range over the whole set; four fifths are for training, as always in the
examples.
"""

import numpy

from paddle.v2.dataset import common

__all__ = ["convert", "fetch", "test", "train"]

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
feature_names = ["CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"]

_TRAIN_SHARE = 0.8


def train():
    """A reader of (13 features, 1 price), both numpy arrays."""
    return _reader(lambda rows, cut: rows[:cut])


def test():
    """The same for the samples kept for testing."""
    return _reader(lambda rows, cut: rows[cut:])


def fetch():
    """Makes sure that the file exists."""
    common.download(URL, "uci_housing", MD5)


def convert(path):
    """Writes both parts as RecordIO."""
    common.convert(path, train(), 1000, "uci_housing_train")
    common.convert(path, test(), 1000, "uci_housing_test")


def _reader(part):
    def reader():
        rows = _load()
        for row in part(rows, int(len(rows) * _TRAIN_SHARE)):
            yield row[:-1], row[-1:]

    return reader


def _load():
    rows = numpy.loadtxt(common.download(URL, "uci_housing", MD5), ndmin=2)
    features = rows[:, : len(feature_names)]
    spread = features.max(axis=0) - features.min(axis=0)
    rows[:, : len(feature_names)] = (features - features.mean(axis=0)) / spread
    return rows
