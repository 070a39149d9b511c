"""`paddle.v2` as far as data goes: `dataset`, `reader`, `batch`."""

from paddle.v2 import dataset, minibatch, reader
from paddle.v2.minibatch import batch

__all__ = ["batch", "dataset", "minibatch", "reader"]
