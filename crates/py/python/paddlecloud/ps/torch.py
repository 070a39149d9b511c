"""PyTorch with parameter servers: two lines in an existing script.

    from paddlecloud.ps.torch import DistributedOptimizer
    optimizer = DistributedOptimizer(optimizer)

`optimizer.step()` then sends the gradients to the parameter servers, which average them over the trainers and update, and fetches the new parameters. Learning rates are read from the parameter groups at every step, so schedulers work as before.
"""

from __future__ import annotations

from typing import Any

import torch

from paddlecloud.ps import optimizers
from paddlecloud.ps.optimizers import Optimizer
from paddlecloud.ps.session import Session, connect


def DistributedOptimizer(optimizer: Any, session: Session | None = None) -> Any:
    """Makes a PyTorch optimizer update the parameters on the parameter servers. Returns the same object.

    Frozen parameters (`requires_grad=False`) are not changed. A step pushes what `backward` has accumulated.
    """
    session = session or connect()
    tensors: dict[str, Any] = {}
    names: list[list[tuple[str, Any]]] = []
    for number, group in enumerate(optimizer.param_groups):
        rule = _rule(optimizer, group)
        named = [(f"group{number}.{at}", tensor) for at, tensor in enumerate(group["params"]) if tensor.requires_grad]
        for name, tensor in named:
            session.create(name, tensor.detach(), rule)
        tensors.update(named)
        names.append(named)
    values = {name: tensor.detach() for name, tensor in tensors.items()}
    session.pull(list(values), out=values)
    plain = type(optimizer)

    def step(self: Any, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, named in zip(self.param_groups, names):
            gradients = {name: tensor.grad for name, tensor in named if tensor.grad is not None}
            if gradients:
                session.push(gradients, lr=float(group["lr"]))
        session.end_step(list(values), out=values)
        return loss

    optimizer.session = session
    optimizer.__class__ = type(plain.__name__, (plain,), {"step": step})
    return optimizer


def _rule(optimizer: Any, group: dict[str, Any]) -> Optimizer:
    kind, lr, decay = type(optimizer), float(group["lr"]), float(group.get("weight_decay", 0.0))
    unsupported = [name for name in ("maximize", "amsgrad", "dampening", "lr_decay") if group.get(name)]
    if unsupported:
        raise ValueError(f"the parameter servers do not support `{unsupported[0]}` of {kind.__name__}")
    if kind is torch.optim.SGD:
        if group["momentum"]:
            return optimizers.Momentum(lr, group["momentum"], bool(group["nesterov"]), l2=decay)
        return optimizers.SGD(lr, l2=decay)
    if kind is torch.optim.Adam:
        return optimizers.Adam(lr, *group["betas"], group["eps"], l2=decay)
    if kind is torch.optim.AdamW:
        return optimizers.AdamW(lr, *group["betas"], group["eps"], decay)
    if kind is torch.optim.Adagrad and not group["initial_accumulator_value"]:
        return optimizers.Adagrad(lr, group["eps"], l2=decay)
    raise ValueError(f"the parameter servers do not support {kind.__name__}; use SGD, Adam, AdamW or Adagrad")


class Embedding(torch.nn.Module):
    """Rows of a sparse table on the parameter servers. The table may be larger than this trainer's memory.

    In training, rows are created at their first use and changed by the optimizer given here; in evaluation none is created.
    """

    def __init__(self, session: Session, name: str, size: int, optimizer: Optimizer | None = None, **options: Any) -> None:
        super().__init__()
        self._session, self._table = session, name
        session.table(name, size, optimizer, **options)

    def forward(self, ids: Any) -> Any:
        wanted = ids.detach().numpy()
        rows = torch.from_numpy(self._session.lookup(self._table, wanted, train=self.training))
        if self.training:
            rows.requires_grad_()
            rows.register_hook(lambda gradient: self._session.push_rows(self._table, wanted, gradient))
        return rows


class EmbeddingBag(Embedding):
    """The sum or the mean of the rows along the last dimension of the ids."""

    def __init__(self, session: Session, name: str, size: int, *args: Any, mode: str = "sum", **options: Any) -> None:
        if mode not in ("sum", "mean"):
            raise ValueError(f"`mode` must be 'sum' or 'mean', not {mode!r}")
        super().__init__(session, name, size, *args, **options)
        self._mode = mode

    def forward(self, ids: Any) -> Any:
        rows = super().forward(ids)
        return rows.sum(dim=-2) if self._mode == "sum" else rows.mean(dim=-2)
