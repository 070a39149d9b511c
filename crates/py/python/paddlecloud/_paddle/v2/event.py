"""The events that a trainer passes to an event handler."""

from paddlecloud.legacy.events import (
    BeginIteration,
    BeginPass,
    EndForwardBackward,
    EndIteration,
    EndPass,
    TestResult,
    WithMetric,
)

__all__ = [
    "BeginIteration",
    "BeginPass",
    "EndForwardBackward",
    "EndIteration",
    "EndPass",
    "TestResult",
    "WithMetric",
]
