"""Learning rates that change with the number of updates, or of samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Schedule:
    """The rate at `t`, the number of updates before this one.

    With `by_samples`, `t` is the number of samples that all trainers have pushed, those of this update included; pushes then say
    their `samples`. Until `warmup` the rate rises from 0 to `base`; the shape begins after that.
    """

    base: float
    warmup: int = field(default=0, kw_only=True)
    by_samples: bool = field(default=False, kw_only=True)
    kind: ClassVar[str] = "constant"

    def pieces(self) -> list[tuple[int, float]]:
        return []

    def arguments(self) -> tuple[str, dict[str, float]]:
        numbers = {name: float(value) for name, value in vars(self).items() if isinstance(value, (int, float))}
        return self.kind, numbers


@dataclass(frozen=True)
class Constant(Schedule):
    """Always `base`."""


@dataclass(frozen=True)
class Exponential(Schedule):
    """`base * decay ** (t / every)`, in steps if `staircase`."""

    decay: float
    every: float = 1
    staircase: bool = False
    kind: ClassVar[str] = "exponential"


@dataclass(frozen=True)
class InverseTime(Schedule):
    """`base / (1 + decay * t / every)`."""

    decay: float
    every: int = 1
    kind: ClassVar[str] = "inverse_time"


@dataclass(frozen=True)
class InversePower(Schedule):
    """`base / (1 + decay * t) ** power`."""

    decay: float
    power: float = 1.0
    kind: ClassVar[str] = "inverse_power"


@dataclass(frozen=True)
class Linear(Schedule):
    """`base - slope * t`, but never less than `end`."""

    slope: float
    end: float = 0.0
    kind: ClassVar[str] = "linear"


@dataclass(frozen=True)
class Polynomial(Schedule):
    """From `base` to `end` within `steps`."""

    steps: int
    end: float = 0.0
    power: float = 1.0
    kind: ClassVar[str] = "polynomial"


@dataclass(frozen=True)
class Cosine(Schedule):
    """From `base` to `end` within `steps`, along half a cosine."""

    steps: int
    end: float = 0.0
    kind: ClassVar[str] = "cosine"


@dataclass(frozen=True)
class Piecewise(Schedule):
    """`base` first; from each boundary on the rate beside it."""

    boundaries: tuple[tuple[int, float], ...]
    kind: ClassVar[str] = "piecewise"

    def pieces(self) -> list[tuple[int, float]]:
        return [(int(at), float(rate)) for at, rate in self.boundaries]
