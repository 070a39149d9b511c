"""What flows between layers: rows, and where the sequences among them begin."""

from __future__ import annotations

import numpy as np


class Value:
    """`data` has one row per sample, or per position of all sequences one after another.

    `starts` are the first rows of the sequences and the end of the last, or `None`. `logits` is what a softmax is applied to: its own result is
    computed when it is first asked for, which costs and metrics do not do. Ids are one-dimensional integers.
    """

    __slots__ = ("_data", "extra", "logits", "starts")

    def __init__(self, data, starts=None, logits=None, extra=None):
        self._data = data
        self.starts = starts
        self.logits = logits
        self.extra = extra

    @property
    def data(self):
        if self._data is None:
            import paddle.nn.functional as F

            self._data = F.softmax(self.logits, axis=-1)
        return self._data

    @property
    def ranking(self):
        """Rows as numpy that order the classes like `data`."""
        return np.from_dlpack((self.data if self.logits is None else self.logits).detach())

    def with_extra(self, extra):
        return Value(self._data, self.starts, self.logits, extra)

    @property
    def lengths(self):
        return np.diff(self.starts)


class Sparse:
    """Rows given by the places that are not 0: row i has `ids[starts[i]:starts[i+1]]`, with `values` or 1."""

    __slots__ = ("ids", "starts", "values", "width")

    def __init__(self, ids, starts, values, width):
        self.ids = ids
        self.starts = starts
        self.values = values
        self.width = width

    @property
    def rows(self):
        """For each place, the row it is in."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def dense(self):
        found = np.zeros((len(self.starts) - 1, self.width), np.float32)
        np.add.at(found, (self.rows, self.ids), 1.0 if self.values is None else self.values)
        return found


class Steps:
    """Sequences as time steps: `index[t, b]` is the row of position t of sequence b, or `rows` past its end."""

    def __init__(self, starts, reverse=False):
        lengths = np.diff(starts)
        self.rows = int(starts[-1])
        self.count = int(lengths.max()) if len(lengths) else 0
        at = np.arange(self.count)[:, None]
        place = lengths[None, :] - 1 - at if reverse else at
        self.alive = at < lengths[None, :]
        self.index = np.where(self.alive, starts[:-1][None, :] + place, self.rows)
        # Where row r of the flat form is among the steps.
        flat = np.empty(self.rows + 1, np.int64)
        flat[self.index.reshape(-1)] = np.arange(self.index.size)
        self.back = flat[:-1]
        self.is_even = bool(self.alive.all())
