"""PaddlePaddle 3 with parameter servers: two lines in an existing script.

    from paddlecloud.ps.paddle import DistributedOptimizer
    optimizer = DistributedOptimizer(optimizer)

`optimizer.step()` then sends the gradients to the parameter servers, which average them over the trainers and update, and fetches the new parameters. The learning rate is read from the optimizer at every step, so schedulers work as before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from paddlecloud.ps import optimizers
from paddlecloud.ps.optimizers import Optimizer
from paddlecloud.ps.session import Session, connect


def DistributedOptimizer(optimizer: Any, session: Session | None = None) -> Any:
    """Makes a Paddle optimizer update the parameters on the parameter servers. Returns the same object.

    Frozen parameters (`stop_gradient=True`) are not changed. A step pushes what `backward` has accumulated.
    """
    session = session or connect()
    named: list[tuple[str, Any, float]] = []
    values: dict[str, Any] = {}
    for tensor, scale, rule in _parameters(optimizer):
        name = f"parameter{len(named)}"
        session.create(name, tensor.numpy(), rule)
        named.append((name, tensor, scale))
        values[name] = np.empty(tuple(tensor.shape), np.float32)
    _take(session.pull(list(values), out=values), named)
    plain = type(optimizer)

    def step(self: Any) -> None:
        by_rate: dict[float, dict[str, Any]] = {}
        for name, tensor, scale in named:
            if tensor.grad is not None:
                by_rate.setdefault(float(self.get_lr()) * scale, {})[name] = tensor.grad.numpy()
        for rate, gradients in by_rate.items():
            session.push(gradients, lr=rate)
        _take(session.end_step(list(values), out=values), named)

    optimizer.session = session
    optimizer.__class__ = type(plain.__name__, (plain,), {"step": step})
    return optimizer


def _take(values: dict[str, Any], named: list[tuple[str, Any, float]]) -> None:
    with paddle.no_grad():
        for name, tensor, _ in named:
            tensor.set_value(values[name])


def _parameters(optimizer: Any) -> list[tuple[Any, float, Optimizer]]:
    """The trainable parameters, the factor of their group's learning rate, and their rule."""
    found = []
    groups = optimizer._param_groups
    for group in groups:
        settings = group if isinstance(group, dict) else {"params": [group]}
        scale = float(settings.get("learning_rate", 1.0)) if isinstance(group, dict) else 1.0
        rule = _rule(optimizer, settings)
        found += [(tensor, scale, rule) for tensor in settings["params"] if not tensor.stop_gradient]
    return found


def _rule(optimizer: Any, group: dict[str, Any]) -> Optimizer:
    kind, lr = type(optimizer), float(optimizer.get_lr())
    decay = group.get("weight_decay")
    if decay is None:
        decay = optimizer.regularization
    l2 = float(getattr(decay, "_regularization_coeff", getattr(decay, "_coeff", decay)) or 0.0)
    if kind is paddle.optimizer.SGD:
        return optimizers.SGD(lr, l2=l2)
    if kind is paddle.optimizer.Momentum:
        return optimizers.Momentum(lr, optimizer._momentum, bool(optimizer._use_nesterov), l2=l2)
    if kind is paddle.optimizer.Adam:
        return optimizers.Adam(lr, optimizer._beta1, optimizer._beta2, optimizer._epsilon, l2=l2)
    if kind is paddle.optimizer.AdamW:
        decay = float(getattr(optimizer, "_weight_decay", 0.0))
        return optimizers.AdamW(lr, optimizer._beta1, optimizer._beta2, optimizer._epsilon, decay)
    if kind is paddle.optimizer.Adagrad:
        return optimizers.Adagrad(lr, optimizer._epsilon, l2=l2)
    if kind is paddle.optimizer.Adamax:
        return optimizers.Adamax(lr, optimizer._beta1, optimizer._beta2, optimizer._epsilon, l2=l2)
    if kind is paddle.optimizer.RMSProp and not optimizer._centered:
        return optimizers.RMSProp(lr, optimizer._rho, optimizer._momentum, optimizer._epsilon, l2=l2)
    if kind is paddle.optimizer.Adadelta:
        return optimizers.AdaDelta(lr, optimizer._rho, optimizer._epsilon, l2=l2)
    raise ValueError(
        f"the parameter servers do not support {kind.__name__}; "
        "use SGD, Momentum, Adam, AdamW, Adamax, Adagrad, RMSProp or Adadelta"
    )


class Embedding(paddle.nn.Layer):
    """Rows of a sparse table on the parameter servers. The table may be larger than this trainer's memory.

    In training, rows are created at their first use and changed by the optimizer given here; in evaluation none is created.
    """

    def __init__(self, session: Session, name: str, size: int, optimizer: Optimizer | None = None, **options: Any) -> None:
        super().__init__()
        self._session, self._table = session, name
        session.table(name, size, optimizer, **options)

    def forward(self, ids: Any) -> Any:
        wanted = ids.numpy()
        rows = paddle.to_tensor(self._session.lookup(self._table, wanted, train=self.training))
        if self.training:
            rows.stop_gradient = False
            rows.register_hook(lambda gradient: self._session.push_rows(self._table, wanted, gradient.numpy()))
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
        return rows.sum(axis=-2) if self._mode == "sum" else rows.mean(axis=-2)
