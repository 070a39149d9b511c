"""Embeddings of Paddle models whose rows are a sparse table of the parameter servers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import paddle

from paddlecloud.ps.optimizers import Optimizer
from paddlecloud.ps.session import Session


class Embedding(paddle.nn.Layer):
    """Rows of a sparse table on the parameter servers. The table may be larger than this trainer's memory.

    In training, rows are created at their first use and changed by the optimizer given here; in evaluation and under
    `paddle.no_grad` none is created. The row of `padding_idx` is 0 and stays so.

    The rows are no parameters of the model: its `state_dict` and `grad_clip` do not see them, and `session.save` saves them. A
    copy of the model uses the same rows. One that was pickled has no session: see `attach`.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        size: int,
        optimizer: Optimizer | None = None,
        *,
        padding_idx: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if padding_idx is not None and padding_idx < 0:
            raise ValueError(f"`padding_idx` must not be negative, not {padding_idx}: the table has no last row")
        self._session: Session | None = session
        self._table, self._size, self._padding = name, size, padding_idx
        self._declaration = (optimizer, options)
        session.table(name, size, optimizer, **options)

    def forward(self, ids: Any) -> Any:
        wanted = ids.numpy()
        if wanted.dtype.kind not in "iu" or (wanted.size and wanted.min() < 0):
            raise ValueError(f"ids of `{self._table}` must be integers from 0; for padding use `padding_idx`")
        if self._padding is None:
            return self._rows(wanted)
        kept = wanted != self._padding
        rows = paddle.concat([paddle.zeros([1, self._size]), self._rows(wanted[kept])])
        # Every id's place among the rows; that of padding is the first.
        place = np.where(kept, np.cumsum(kept).reshape(kept.shape), 0)
        return paddle.gather(rows, paddle.to_tensor(place.reshape(-1))).reshape([*wanted.shape, self._size])

    def extra_repr(self) -> str:
        return f"{self._table!r}, {self._size}"

    def _rows(self, wanted: Any) -> Any:
        """The rows of ids; what `backward` finds for them is sent at once."""
        if self._session is None:
            raise ValueError(f"the embedding `{self._table}` was loaded from a file; call `attach(model, session)` first")
        session, has_gradient = self._session, paddle.is_grad_enabled()
        is_training = self.training and has_gradient
        rows = paddle.to_tensor(session.lookup(self._table, wanted, train=is_training))

        def send(gradient: Any) -> None:
            if not is_training:
                raise ValueError(
                    f"the rows of `{self._table}` were looked up in evaluation; call `train()` on the model to train them"
                )
            session.push_rows(self._table, wanted, gradient.numpy())

        if has_gradient:
            rows.stop_gradient = False
            rows.register_hook(send)
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Embedding:
        """A model of the same rows: the session is shared."""
        result = self.__class__.__new__(self.__class__)
        memo[id(self)] = result
        memo[id(self._session)] = self._session
        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return result


class EmbeddingBag(Embedding):
    """The sum or the mean of the rows along the last dimension of the ids. Padding counts as a row of 0."""

    def __init__(
        self, session: Session, name: str, size: int, optimizer: Optimizer | None = None, *, mode: str = "sum", **options: Any
    ) -> None:
        if mode not in ("sum", "mean"):
            raise ValueError(f"`mode` must be 'sum' or 'mean', not {mode!r}")
        super().__init__(session, name, size, optimizer, **options)
        self._mode = mode

    def forward(self, ids: Any) -> Any:
        rows = super().forward(ids)
        return rows.sum(axis=-2) if self._mode == "sum" else rows.mean(axis=-2)


def attach(model: Any, session: Session) -> Any:
    """Gives a session to the embeddings of a model that was loaded from a file, and declares their tables. Returns the model."""
    for layer in model.sublayers(include_self=True):
        if isinstance(layer, Embedding):
            optimizer, options = layer._declaration
            session.table(layer._table, layer._size, optimizer, **options)
            layer._session = session
    return model
