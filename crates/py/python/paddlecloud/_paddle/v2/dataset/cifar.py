"""Small colour images: 3 × 32 × 32 values from 0 to 1, and the class."""

import pickle
import tarfile

import numpy

from paddle.v2.dataset import common

__all__ = ["convert", "fetch", "test10", "test100", "train10", "train100"]

URL_PREFIX = "https://www.cs.toronto.edu/~kriz/"
CIFAR10 = ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")
CIFAR100 = ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85")


def train10():
    """A reader of (3072 values, one of 10 classes)."""
    return _reader(CIFAR10, "data_batch")


def test10():
    """The same for the images kept for testing."""
    return _reader(CIFAR10, "test_batch")


def train100():
    """A reader of (3072 values, one of 100 classes)."""
    return _reader(CIFAR100, "train")


def test100():
    """The same for the images kept for testing."""
    return _reader(CIFAR100, "test")


def fetch():
    """Makes sure that both archives exist."""
    for name, md5 in (CIFAR10, CIFAR100):
        common.download(URL_PREFIX + name, "cifar", md5)


def convert(path):
    """Writes all parts as RecordIO."""
    for part in (train100, test100, train10, test10):
        kind = part.__name__
        common.convert(path, part(), 1000, f"cifar_{kind}")


class _Arrays(pickle.Unpickler):
    """Reads what the archives hold, lists and arrays; refuses anything else that a pickle may call."""

    _ALLOWED = {("_codecs", "encode"), *((f"numpy{core}", name) for core in ("", ".core.multiarray", "._core.multiarray")
                                         for name in ("ndarray", "dtype", "_reconstruct"))}  # fmt: skip

    def find_class(self, module, name):
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"the archive contains `{module}.{name}`, which is not part of a data set")
        return super().find_class(module, name)


def _reader(archive, part):
    def reader():
        name, md5 = archive
        with tarfile.open(common.download(URL_PREFIX + name, "cifar", md5)) as tar:
            for member in tar:
                if not member.isfile() or part not in member.name:
                    continue
                batch = _Arrays(tar.extractfile(member), encoding="bytes").load()
                labels = batch.get(b"labels", batch.get(b"fine_labels"))
                for image, label in zip(batch[b"data"], labels):
                    yield (image / 255.0).astype(numpy.float32), int(label)

    return reader
