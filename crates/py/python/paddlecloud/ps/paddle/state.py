"""The optimizer state of the parameter servers in Paddle's own form: `<parameter>_<accumulator>_0`.

A program that trains alone can load what `state_dict` returns here, and the other way round.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import paddle

from paddlecloud.ps.optimizers import OptimizerState
from paddlecloud.ps.paddle import rules
from paddlecloud.ps.session import Session

# Of each kind: Paddle's name of an accumulator, and that of the servers.
_SLOTS: dict[type, dict[str, str]] = {
    paddle.optimizer.SGD: {},
    paddle.optimizer.Momentum: {"velocity": "velocity"},
    paddle.optimizer.Adam: {"moment1": "mean", "moment2": "square"},
    paddle.optimizer.AdamW: {"moment1": "mean", "moment2": "square"},
    paddle.optimizer.Adagrad: {"moment": "sum"},
    paddle.optimizer.RMSProp: {"momentum": "velocity", "mean_square": "square", "mean_grad": "mean"},
    paddle.optimizer.Adadelta: {"_avg_squared_grad": "square", "_avg_squared_update": "change"},
    paddle.optimizer.Adamax: {"moment": "mean", "inf_norm": "largest"},
}
# What else is in a `state_dict`; parameters of float32 have no master weights.
NO_ACCUMULATORS = ("LR_Scheduler", "master_weights")
# Of Adam's kinds: the betas whose powers Paddle keeps.
_POWERS: dict[type, tuple[str, ...]] = {
    paddle.optimizer.Adam: ("beta1", "beta2"),
    paddle.optimizer.AdamW: ("beta1", "beta2"),
    paddle.optimizer.Adamax: ("beta1",),
}


def read(optimizer: Any, session: Session, declared: dict[str, Any]) -> dict[str, Any]:
    """What Paddle's `state_dict` has of the parameters that were updated."""
    kind, found = rules.plain_kind(optimizer), {}
    for name, state in session.optimizer_state(list(declared)).items():
        tensor = declared[name]
        if state.updates == 0 or not _SLOTS[kind]:
            continue
        for paddles, ours in _SLOTS[kind].items():
            values = state.slots.get(ours, np.zeros(tuple(tensor.shape), np.float32))
            found[_key(optimizer, tensor, paddles)] = paddle.to_tensor(values.reshape(tensor.shape))
        # Paddle multiplies before it needs the power.
        for (beta, value), power in zip(_betas(optimizer, tensor).items(), state.powers or ()):
            found[_key(optimizer, tensor, f"{beta}_pow_acc")] = paddle.to_tensor([np.float32(power) * np.float32(value)])
    return found


def parse(optimizer: Any, given: dict[str, Any], declared: dict[str, Any]) -> dict[str, OptimizerState]:
    """The states of the parameters that the dictionary has; one that was never updated is not in it."""
    kind, found, unused = rules.plain_kind(optimizer), {}, dict(given)
    for key in NO_ACCUMULATORS:
        unused.pop(key, None)
    for name, tensor in declared.items():
        slots = {ours: _take(unused, optimizer, tensor, paddles) for paddles, ours in _SLOTS[kind].items()}
        powers = {beta: _take(unused, optimizer, tensor, f"{beta}_pow_acc") for beta in _POWERS.get(kind, ())}
        missing = [slot for slot, value in (slots | powers).items() if value is None]
        if not slots or len(missing) == len(slots | powers):
            continue
        if missing:
            raise ValueError(f"the optimizer state has no {missing[0]} of `{tensor.name}`")
        own = {slot: _array(slots[slot], tensor) for slot in rules.slots(optimizer, tensor)}
        # Paddle does not keep the number of updates, and its rules do not need it.
        found[name] = OptimizerState(1, 0, own, _before(_betas(optimizer, tensor), powers))
    if unused:
        raise ValueError(f"the optimizer state has `{next(iter(unused))}`, but the optimizer trains no such parameter")
    return found


def _key(optimizer: Any, tensor: Any, accumulator: str) -> str:
    prefix = "" if optimizer._name is None else f"{optimizer._name}_"
    return f"{tensor.name}_{prefix}{accumulator}_0"


def _take(given: dict[str, Any], optimizer: Any, tensor: Any, accumulator: str) -> Any:
    """Paddle numbers accumulators when a process makes several optimizers for one parameter."""
    pattern = re.compile(re.escape(_key(optimizer, tensor, accumulator).removesuffix("0")) + r"\d+")
    keys = [key for key in given if pattern.fullmatch(key)]
    return given.pop(keys[0]) if keys else None


def _array(value: Any, tensor: Any) -> Any:
    found = _numpy(value)
    if found.size != math.prod(tensor.shape):
        raise ValueError(f"the optimizer state of `{tensor.name}` has shape {found.shape}, not {tuple(tensor.shape)}")
    return np.ascontiguousarray(found).reshape(tuple(tensor.shape))


def _numpy(value: Any) -> Any:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value, np.float32)


def _betas(optimizer: Any, tensor: Any) -> dict[str, float]:
    kind = rules.plain_kind(optimizer)
    rule = rules.initial(optimizer, tensor, rules.group_of(optimizer, tensor))
    return {beta: getattr(rule, beta) for beta in _POWERS.get(kind, ())}


def _before(betas: dict[str, float], powers: dict[str, Any]) -> tuple[float, float] | None:
    """The servers multiply when they need the power."""
    if not betas:
        return None
    found = [float(_numpy(powers[beta]).item()) / value if value else 1.0 for beta, value in betas.items()]
    return found[0], [*found, 1.0][1]
