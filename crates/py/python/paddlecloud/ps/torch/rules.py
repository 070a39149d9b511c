"""Which rule of the parameter servers is an optimizer of PyTorch, with the numbers that its parameter group has now.

The numbers are read at every step, so that schedulers and programs may change them. What the servers cannot do is refused by
name here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paddlecloud.ps import optimizers
from paddlecloud.ps.optimizers import Optimizer

_NAMES = "SGD, Adam, AdamW, Adagrad, RMSprop, Adadelta or Adamax"

# Settings that change the result or what a program may do with it, and what to do instead.
_REFUSED = {
    "amsgrad": "set amsgrad=False",
    "capturable": "set capturable=False: the servers update, not a graphics card",
    "differentiable": "set differentiable=False: there is no gradient through an update on a server",
}


def rule_of(plain: type, group: dict[str, Any]) -> Optimizer:
    """The rule for the parameters of `group`, of an optimizer whose class is `plain`."""
    if plain not in _RULES:
        raise ValueError(f"the parameter servers do not support {plain.__name__}; use {_NAMES}")
    for name, instead in _REFUSED.items():
        if group.get(name):
            raise ValueError(f"the parameter servers do not support `{name}` of {plain.__name__}; {instead}")
    return _RULES[plain](group)


def _sgd(group: dict[str, Any]) -> Optimizer:
    if not group["momentum"]:
        return optimizers.SGD(_rate(group), **_common(group))
    return optimizers.Momentum(
        _rate(group),
        float(group["momentum"]),
        bool(group["nesterov"]),
        dampening=float(group["dampening"]),
        **_common(group),
    )


def _adam(group: dict[str, Any]) -> Optimizer:
    if group.get("decoupled_weight_decay"):
        return _adamw(group)
    return optimizers.Adam(_rate(group), *_betas(group), _epsilon(group), **_common(group))


def _adamw(group: dict[str, Any]) -> Optimizer:
    return optimizers.AdamW(_rate(group), *_betas(group), _epsilon(group), float(group["weight_decay"]), double=True)


def _adagrad(group: dict[str, Any]) -> Optimizer:
    return optimizers.Adagrad(
        _rate(group),
        _epsilon(group),
        lr_decay=float(group["lr_decay"]),
        initial=float(group["initial_accumulator_value"]),
        **_common(group),
    )


def _rmsprop(group: dict[str, Any]) -> Optimizer:
    return optimizers.RMSProp(
        _rate(group),
        float(group["alpha"]),
        float(group["momentum"]),
        _epsilon(group),
        centered=bool(group["centered"]),
        epsilon_outside=True,
        **_common(group),
    )


def _adadelta(group: dict[str, Any]) -> Optimizer:
    return optimizers.AdaDelta(_rate(group), float(group["rho"]), _epsilon(group), **_common(group))


def _adamax(group: dict[str, Any]) -> Optimizer:
    return optimizers.Adamax(_rate(group), *_betas(group), _epsilon(group), epsilon_inside=True, **_common(group))


def _rate(group: dict[str, Any]) -> float:
    return float(group["lr"])


def _common(group: dict[str, Any]) -> dict[str, Any]:
    """PyTorch computes with numbers in double precision."""
    return {"l2": float(group["weight_decay"]), "double": True}


def _epsilon(group: dict[str, Any]) -> float:
    return float(group["eps"])


def _betas(group: dict[str, Any]) -> tuple[float, float]:
    first, second = group["betas"]
    return float(first), float(second)


_RULES: dict[type, Callable[[dict[str, Any]], Optimizer]] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adamw,
    torch.optim.Adagrad: _adagrad,
    torch.optim.RMSprop: _rmsprop,
    torch.optim.Adadelta: _adadelta,
    torch.optim.Adamax: _adamax,
}

# PyTorch's names of what the rules call by the names of `Optimizer.slots()`.
STATE_NAMES: dict[type, dict[str, str]] = {
    torch.optim.SGD: {"momentum_buffer": "velocity"},
    torch.optim.Adam: {"exp_avg": "mean", "exp_avg_sq": "square"},
    torch.optim.AdamW: {"exp_avg": "mean", "exp_avg_sq": "square"},
    torch.optim.Adagrad: {"sum": "sum"},
    torch.optim.RMSprop: {"square_avg": "square", "momentum_buffer": "velocity", "grad_avg": "mean"},
    torch.optim.Adadelta: {"square_avg": "square", "acc_delta": "change"},
    torch.optim.Adamax: {"exp_avg": "mean", "exp_inf": "largest"},
}
