"""How a parameter server changes values by a gradient. The arithmetic is that of docs/design/0012-parameter-server.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from paddlecloud.ps.schedules import Constant, Schedule

_COMMON = ("l1", "l2", "proximal_l1", "clip", "average")


@dataclass(frozen=True)
class Optimizer:
    """What all optimizers have.

    `lr` is a number or a schedule; a push may override it. A gradient is clipped to ±`clip` first, then `l2 * w` and
    `l1 * sign(w)` are added. With `proximal_l1`, every value moves towards 0 by `lr * proximal_l1` after an update and stops
    there. With `average`, a running mean of the values over that many updates is kept:
    `pull(averaged=True)` and saved models show it.
    """

    lr: float | Schedule
    l1: float = field(default=0.0, kw_only=True)
    l2: float = field(default=0.0, kw_only=True)
    proximal_l1: float = field(default=0.0, kw_only=True)
    clip: float = field(default=0.0, kw_only=True)
    average: int = field(default=0, kw_only=True)
    kind: ClassVar[str] = "sgd"

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
    """`v = momentum * v + g; w -= lr * v`"""

    momentum: float = 0.9
    nesterov: bool = False
    kind: ClassVar[str] = "momentum"


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """`a += g * g; w -= lr * g / (sqrt(a) + epsilon)`"""

    epsilon: float = 1e-6
    kind: ClassVar[str] = "adagrad"


@dataclass(frozen=True)
class RowAdagrad(Optimizer):
    """As Adagrad with one sum per row of a table: the mean of its squares."""

    epsilon: float = 1e-6
    kind: ClassVar[str] = "row_adagrad"


@dataclass(frozen=True)
class Adam(Optimizer):
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    kind: ClassVar[str] = "adam"


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with `w *= 1 - lr * decay` before each update."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.01
    kind: ClassVar[str] = "adamw"


@dataclass(frozen=True)
class Adamax(Optimizer):
    """`m = beta1 * m + (1 - beta1) * g; u = max(beta2 * u + epsilon, |g|); w -= lr / (1 - beta1 ** t) * m / u`

    That of 2017 has `epsilon=0`; a value that never had a gradient then stays as it is.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    kind: ClassVar[str] = "adamax"


@dataclass(frozen=True)
class RMSProp(Optimizer):
    rho: float = 0.95
    momentum: float = 0.0
    epsilon: float = 1e-6
    kind: ClassVar[str] = "rmsprop"


@dataclass(frozen=True)
class AdaDelta(Optimizer):
    rho: float = 0.95
    epsilon: float = 1e-6
    kind: ClassVar[str] = "adadelta"


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """Follow the regularized leader; `shrink1` and `shrink2` are its own L1 and L2."""

    beta: float = 1.0
    shrink1: float = 0.0
    shrink2: float = 0.0
    kind: ClassVar[str] = "ftrl"

    def arguments(self) -> tuple[Any, ...]:
        _, *rest = super().arguments()
        rule = {"beta": self.beta, "l1": self.shrink1, "l2": self.shrink2}
        return (self.kind, rule), *rest


@dataclass(frozen=True)
class Velocity(Optimizer):
    """The momentum of 2017: `v = momentum * v - lr * (g + l2 * w); w += v`.

    Rate and regularization are inside the velocity: it keeps them when the rate changes. `scale` gives every element its own rate, from gradients without regularization: `lr / sqrt(s + epsilon)`, where `s` is

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


@dataclass(frozen=True)
class DecayedAdagrad(Velocity):
    """`s = rho * s + (1 - rho) * g * g`, beginning as the first square; `w -= lr / sqrt(s + epsilon) * (g + l2 * w)`"""

    scale: str | None = "decayed_adagrad"
