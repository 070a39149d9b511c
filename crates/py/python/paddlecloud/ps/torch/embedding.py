"""Embeddings of PyTorch models whose rows are a sparse table of the parameter servers."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch

from paddlecloud.ps.optimizers import Optimizer
from paddlecloud.ps.session import Session


class Embedding(torch.nn.Module):
    """Rows of a sparse table on the parameter servers. The table may be larger than this trainer's memory.

    In training, rows are created at their first use and changed by the optimizer given here; in evaluation and under
    `torch.no_grad` none is created. The row of `padding_idx` is 0 and stays so.

    The rows are no parameters of the model: its `state_dict` and `clip_grad_norm_` do not see them, and `session.save` saves them. A
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
        kept, index = self._without_padding(_checked(ids, self._table))
        rows = self._rows(kept)
        if index is None:
            return rows.reshape(*ids.shape, self._size)
        return _with_zero_row(rows)[index].reshape(*ids.shape, self._size)

    def extra_repr(self) -> str:
        return f"{self._table!r}, {self._size}"

    def _without_padding(self, ids: Any) -> tuple[Any, Any]:
        """The flat ids without padding, and for each id its place among them; the padding's is behind the last."""
        flat = ids.reshape(-1)
        if self._padding is None:
            return flat, None
        is_padding = flat == self._padding
        index = torch.cumsum(~is_padding, 0) - 1
        index[is_padding] = int((~is_padding).sum())
        return flat[~is_padding], index

    def _rows(self, ids: Any) -> Any:
        """The rows of flat ids; what `backward` finds for them is sent at once."""
        if self._session is None:
            raise ValueError(f"the embedding `{self._table}` was loaded from a file; call `attach(model, session)` first")
        session, wanted, is_training = self._session, ids.detach().numpy(), self.training and torch.is_grad_enabled()
        rows = torch.from_numpy(session.lookup(self._table, wanted, train=is_training))
        if not torch.is_grad_enabled():
            return rows

        def send(gradient: Any) -> None:
            if not is_training:
                raise ValueError(
                    f"the rows of `{self._table}` were looked up in evaluation; call `train()` on the model to train them"
                )
            session.push_rows(self._table, wanted, gradient.contiguous())

        rows.requires_grad_().register_hook(send)
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
    """The sum, the mean or the largest values of the rows of each bag, as `torch.nn.EmbeddingBag` computes them.

    A bag is the last dimension of the ids or, with `offsets`, a part of one-dimensional ids.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        size: int,
        optimizer: Optimizer | None = None,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        **options: Any,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"`mode` must be 'sum', 'mean' or 'max', not {mode!r}")
        super().__init__(session, name, size, optimizer, **options)
        self._mode, self._include_last_offset = mode, include_last_offset

    def forward(self, ids: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        ids = _checked(ids, self._table)
        bags, shape = self._bags(ids, offsets)
        unique, index = torch.unique(ids.reshape(-1), return_inverse=True)
        kept, place = self._without_padding(unique)
        rows, padding = self._rows(kept), None
        if len(kept) < len(unique):
            rows, index, padding = _with_zero_row(rows), place[index], len(kept)
        weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        found = torch.nn.functional.embedding_bag(
            index,
            rows,
            bags,
            mode=self._mode,
            per_sample_weights=weights,
            include_last_offset=offsets is not None and self._include_last_offset,
            padding_idx=padding,
        )
        return found.reshape(*shape, self._size)

    def _bags(self, ids: Any, offsets: Any) -> tuple[Any, tuple[int, ...]]:
        """Where each bag begins, and the shape of all bags."""
        if offsets is not None:
            if ids.dim() != 1:
                raise ValueError(f"`ids` must have one dimension with `offsets`, not {ids.dim()}")
            return offsets, (len(offsets) - int(self._include_last_offset),)
        *shape, length = ids.shape
        return torch.arange(math.prod(shape), dtype=ids.dtype) * length, tuple(shape)


def attach(model: Any, session: Session) -> Any:
    """Gives a session to the embeddings of a model that was loaded from a file, and declares their tables. Returns the model."""
    for module in model.modules():
        if isinstance(module, Embedding):
            optimizer, options = module._declaration
            session.table(module._table, module._size, optimizer, **options)
            module._session = session
    return model


def _checked(ids: Any, table: str) -> Any:
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids of `{table}` must be int32 or int64, not {str(ids.dtype).removeprefix('torch.')}")
    if ids.numel() and int(ids.min()) < 0:
        raise ValueError(f"ids of `{table}` must not be negative, not {int(ids.min())}; for padding use `padding_idx`")
    return ids


def _with_zero_row(rows: Any) -> Any:
    """The row of padding is the last one."""
    return torch.nn.functional.pad(rows, (0, 0, 0, 1))
