"""Turns a batch of samples into what the data layers give. Errors name the layer, the sample and what was expected."""

from __future__ import annotations

import numpy as np

from paddlecloud.legacy import types
from paddlecloud.legacy.values import Sparse, Value


class FeedError(ValueError):
    """A sample that does not fit its data layer."""


class Feeder:
    """`feeding` says which part of a sample belongs to which data layer: a dict, a list of names, or `None` for their order."""

    def __init__(self, nodes, feeding=None):
        names = [node.name for node in nodes]
        self._hint = ""
        if feeding is None:
            # Programs written for v0.10 took the order in which a network uses its data.
            self._hint = f"; without `feeding`, the parts of a sample are {', '.join(names)}, the order of the program's data layers"
            feeding = {name: number for number, name in enumerate(names)}
        elif not isinstance(feeding, dict):
            feeding = {name: number for number, name in enumerate(feeding)}
        missing = [name for name in names if name not in feeding]
        if missing:
            raise FeedError(
                f"`feeding` does not say where data layer `{missing[0]}` is; it has {', '.join(map(str, feeding)) or 'nothing'}"
            )
        self._columns = [(node, feeding[node.name]) for node in nodes]

    def __call__(self, batch) -> dict[str, Value]:
        try:
            return {node.name: _column(node, place, batch) for node, place in self._columns}
        except FeedError as error:
            raise FeedError(f"{error}{self._hint}") from None


def _column(node, place, batch):
    try:
        found = [sample[place] for sample in batch]
    except (IndexError, KeyError, TypeError):
        number = next(number for number, sample in enumerate(batch) if not _has(sample, place))
        raise FeedError(
            f"sample {number} of the batch has no part {place!r} for data layer `{node.name}` ({node.line})"
        ) from None
    kind = node.conf["type"]
    starts = None
    if kind.is_sequence:
        starts = np.concatenate([[0], np.cumsum([_length(node, number, each) for number, each in enumerate(found)])])
        found = [item for each in found for item in each]
    data = CHECK[kind.kind](node, kind, found)
    if not isinstance(data, Sparse):
        import paddle

        data = paddle.to_tensor(data)
    return Value(data, starts)


def check(node, value) -> None:
    """Raises where one sample's value does not fit its data layer."""
    kind = node.conf["type"]
    if kind.is_sequence:
        _length(node, 0, value)
    CHECK[kind.kind](node, kind, list(value) if kind.is_sequence else [value])


def _has(sample, place):
    try:
        sample[place]
    except (IndexError, KeyError, TypeError):
        return False
    return True


def _length(node, number, value):
    try:
        length = len(value)
    except TypeError:
        length = 0
    if length == 0:
        raise FeedError(
            f"data layer `{node.name}` ({node.line}): sample {number} must be a sequence of at least one item, not {_short(value)}"
        )
    return length


def _dense(node, kind, found):
    try:
        rows = np.asarray(found, np.float32).reshape(len(found), -1)
    except (TypeError, ValueError):
        rows = None
    if rows is None or rows.shape[1] != kind.dim:
        number, got = next(
            (n, size) for n, size in ((n, _size(each)) for n, each in enumerate(found)) if size != kind.dim
        )
        raise FeedError(
            f"data layer `{node.name}` ({node.line}): item {number} must have {kind.dim} numbers, not {got}"
        )
    return rows


def _size(value):
    try:
        return np.asarray(value, np.float32).size
    except (TypeError, ValueError):
        return _short(value)


def _integer(node, kind, found):
    try:
        ids = np.asarray(found)
        if ids.dtype.kind not in "iub":
            ids = np.asarray([_whole(each) for each in found], np.int64)
        ids = ids.reshape(len(found)).astype(np.int64)
    except (TypeError, ValueError):
        bad = next((n for n, each in enumerate(found) if np.ndim(each) or not _is_whole(each)), 0)
        raise FeedError(
            f"data layer `{node.name}` ({node.line}): item {bad} must be one integer, not {_short(found[bad])}"
        ) from None
    _check_range(node, kind, ids)
    return ids


def _whole(value):
    if not _is_whole(value):
        raise ValueError(value)
    return int(value)


def _is_whole(value):
    try:
        return int(value) == value
    except (TypeError, ValueError):
        return False


def _check_range(node, kind, ids):
    if len(ids) and (ids.min() < 0 or ids.max() >= kind.dim):
        bad = int(np.argmax((ids < 0) | (ids >= kind.dim)))
        raise FeedError(
            f"data layer `{node.name}` ({node.line}): id {ids[bad]} of item {bad} must be at least 0 and below {kind.dim}"
        )


def _sparse_binary(node, kind, found):
    lengths = [len(each) for each in found]
    ids = np.fromiter((place for each in found for place in each), np.int64, sum(lengths))
    _check_range(node, kind, ids)
    return Sparse(ids, np.concatenate([[0], np.cumsum(lengths)]), None, kind.dim)


def _sparse_float(node, kind, found):
    rows = [list(each.items()) if isinstance(each, dict) else list(each) for each in found]
    try:
        pairs = [(int(place), float(value)) for row in rows for place, value in row]
    except (TypeError, ValueError):
        raise FeedError(
            f"data layer `{node.name}` ({node.line}): a sparse vector is a list of (id, value) pairs"
        ) from None
    ids = np.array([place for place, _ in pairs], np.int64)
    _check_range(node, kind, ids)
    values = np.array([value for _, value in pairs], np.float32)
    return Sparse(ids, np.concatenate([[0], np.cumsum([len(row) for row in rows])]), values, kind.dim)


def _short(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


CHECK = {
    types.DENSE: _dense,
    types.INTEGER: _integer,
    types.SPARSE_BINARY: _sparse_binary,
    types.SPARSE_FLOAT: _sparse_float,
}
