"""How a parameter server changes values by a gradient. The arithmetic is that of docs/design/0012-parameter-server.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from paddlecloud.ps.schedules import Constant, Schedule

_COMMON = ("l1", "l2", "proximal_l1", "clip", "average", "double")


@dataclass
class OptimizerState:
    """What an optimizer keeps for one dense tensor.

    `updates` and `samples` so far, which schedules and Adam's correction count, and an array like the tensor for each of
    `Optimizer.slots()`. `powers` are the products of Adam's betas over all updates; without them, they follow from `updates`.
    """

    updates: int
    samples: int
    slots: dict[str, npt.NDArray[np.float32]]
    powers: tuple[float, float] | None = None


@dataclass(frozen=True)
class Optimizer:
    """What all optimizers have.

    `lr` is a number or a schedule; a push may override it. A gradient is clipped to ±`clip` first, then `l2 * w` and
    `l1 * sign(w)` are added. With `proximal_l1`, every value moves towards 0 by `lr * proximal_l1` after an update and stops
    there. With `average`, a running mean of the values over that many updates is kept:
    `pull(averaged=True)` and saved models show it.

    With `double`, rates and constants are computed in double precision and rounded once, and Adam's correction is
    `1 - beta ** t`, as in PyTorch. Otherwise every constant is rounded to float32 first, and the correction uses the product of
    the betas of all updates, as in PaddlePaddle.
    """

    lr: float | Schedule
    l1: float = field(default=0.0, kw_only=True)
    l2: float = field(default=0.0, kw_only=True)
    proximal_l1: float = field(default=0.0, kw_only=True)
    clip: float = field(default=0.0, kw_only=True)
    average: int = field(default=0, kw_only=True)
    double: bool = field(default=False, kw_only=True)
    kind: ClassVar[str] = "sgd"

    def slots(self) -> tuple[str, ...]:
        """The names of the state that is kept for each element."""
        return (*self._slots(), *(["average"] if self.average else []))

    def _slots(self) -> tuple[str, ...]:
        return ()

    def arguments(self) -> tuple[Any, ...]:
        schedule = self.lr if isinstance(self.lr, Schedule) else Constant(float(self.lr))
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, (int, float))}
        rule = {name: float(value) for name, value in numbers.items() if name not in (*_COMMON, "lr")}
        common = {name: float(getattr(self, name)) for name in _COMMON}
        return (self.kind, rule), schedule.arguments(), schedule.pieces(), ("common", common)


@dataclass(frozen=True)
class SGD(Optimizer):
    """`w -= lr * g`"""


@dataclass(frozen=True)
class Momentum(Optimizer):
    """`v = momentum * v + (1 - dampening) * g; w -= lr * v`; the first `v` is `g`

    With `nesterov`: `w -= lr * (g + momentum * v)`.
    """

    momentum: float = 0.9
    nesterov: bool = False
    dampening: float = 0.0
    kind: ClassVar[str] = "momentum"

    def _slots(self) -> tuple[str, ...]:
        return ("velocity",)


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """`a += g * g; w -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(a) + epsilon)`; `a` begins as `initial`

    `initial` counts when a tensor or a row begins, not in the optimizer of a push.
    """

    epsilon: float = 1e-6
    lr_decay: float = 0.0
    initial: float = 0.0
    kind: ClassVar[str] = "adagrad"

    def _slots(self) -> tuple[str, ...]:
        return ("sum",)


@dataclass(frozen=True)
class RowAdagrad(Optimizer):
    """As Adagrad with one sum per row of a table: the mean of its squares."""

    epsilon: float = 1e-6
    kind: ClassVar[str] = "row_adagrad"

    def _slots(self) -> tuple[str, ...]:
        return ("sum",)  # of a dense tensor, which has no rows


@dataclass(frozen=True)
class Adam(Optimizer):
    """With `of_sparse`, the correction is that of the next update, as PaddlePaddle computes it for a sparse gradient."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    of_sparse: bool = False
    kind: ClassVar[str] = "adam"

    def _slots(self) -> tuple[str, ...]:
        return ("mean", "square")


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with `w -= lr * decay * w` before each update."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.01
    kind: ClassVar[str] = "adamw"

    def _slots(self) -> tuple[str, ...]:
        return ("mean", "square")


@dataclass(frozen=True)
class Adamax(Optimizer):
    """`m = beta1 * m + (1 - beta1) * g; u = max(beta2 * u + epsilon, |g|); w -= lr / (1 - beta1 ** t) * m / u`

    With `epsilon_inside`: `u = max(beta2 * u, |g| + epsilon)`, as in PyTorch. That of 2017 has `epsilon=0`; a value that never had
    a gradient then stays as it is.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    epsilon_inside: bool = False
    kind: ClassVar[str] = "adamax"

    def _slots(self) -> tuple[str, ...]:
        return ("mean", "largest")


@dataclass(frozen=True)
class RMSProp(Optimizer):
    """`s = rho * s + (1 - rho) * g * g; v = momentum * v + lr * g / sqrt(s + epsilon); w -= v`

    With `centered`, the square of the gradient's running mean is subtracted from `s` there. With `epsilon_outside`:
    `v = momentum * v + g / (sqrt(s) + epsilon); w -= lr * v`, as in PyTorch.
    """

    rho: float = 0.95
    momentum: float = 0.0
    epsilon: float = 1e-6
    centered: bool = False
    epsilon_outside: bool = False
    kind: ClassVar[str] = "rmsprop"

    def _slots(self) -> tuple[str, ...]:
        return ("square", *(["mean"] if self.centered else []), *(["velocity"] if self.momentum else []))


@dataclass(frozen=True)
class AdaDelta(Optimizer):
    rho: float = 0.95
    epsilon: float = 1e-6
    kind: ClassVar[str] = "adadelta"

    def _slots(self) -> tuple[str, ...]:
        return ("square", "change")


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """Follow the regularized leader; `shrink1` and `shrink2` are its own L1 and L2."""

    beta: float = 1.0
    shrink1: float = 0.0
    shrink2: float = 0.0
    kind: ClassVar[str] = "ftrl"

    def _slots(self) -> tuple[str, ...]:
        return ("square", "linear")


@dataclass(frozen=True)
class Velocity(Optimizer):
    """The momentum of 2017: `v = momentum * v - lr * (g + l2 * w); w += v`.

    Rate and regularization are inside the velocity: it keeps them when the rate changes. `scale` gives every element its own
    rate, from gradients without regularization: `lr / sqrt(s + epsilon)`, where `s` is

    - "adagrad": the sum of all squares;
    - "decayed_adagrad": their running mean with `rho`, which begins as the first square;
    - "rmsprop": the same less the square of the running mean of the gradient;

    or `lr * sqrt((c + epsilon) / (s + epsilon))` with "adadelta".
    """

    momentum: float = 0.0
    scale: str | None = None
    rho: float = 0.95
    epsilon: float = 1e-6
    kind: ClassVar[str] = "velocity"

    def __post_init__(self) -> None:
        if self.scale not in (None, "adagrad", "decayed_adagrad", "rmsprop", "adadelta"):
            raise ValueError(
                f"`scale` must be 'adagrad', 'decayed_adagrad', 'rmsprop', 'adadelta' or None, not {self.scale!r}"
            )

    def arguments(self) -> tuple[Any, ...]:
        schedule, pieces, common = super().arguments()[1:]
        rule = {"momentum": self.momentum, "rho": self.rho, "epsilon": self.epsilon}
        kind = f"velocity_{self.scale}" if self.scale else "velocity"
        return (kind, rule), schedule, pieces, common

    def _slots(self) -> tuple[str, ...]:
        of_scale = {
            "adagrad": ("square",),
            "decayed_adagrad": ("square",),
            "rmsprop": ("square", "mean"),
            "adadelta": ("square", "change"),
        }
        return (*of_scale.get(self.scale or "", ()), *(["velocity"] if self.momentum else []))


@dataclass(frozen=True)
class DecayedAdagrad(Velocity):
    """`s = rho * s + (1 - rho) * g * g`, beginning as the first square; `w -= lr / sqrt(s + epsilon) * (g + l2 * w)`"""

    scale: str | None = "decayed_adagrad"
