"""The initial values of a table's rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Zero:
    """New rows are 0."""


@dataclass(frozen=True)
class Uniform:
    """New rows are evenly distributed between `low` and `high`."""

    low: float = -0.05
    high: float = 0.05


@dataclass(frozen=True)
class Normal:
    """New rows are (nearly) normally distributed."""

    mean: float = 0.0
    deviation: float = 0.05
