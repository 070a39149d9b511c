"""What a Paddle optimizer does to one parameter, as an optimizer of the parameter servers; and what is refused.

Paddle reads the settings of a group into the optimizer itself before it calls a kernel (`_update_param_group`). The functions
here are called at that place and read what the kernel would get.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
from paddle.regularizer import L1Decay, L2Decay

from paddlecloud.ps import optimizers
from paddlecloud.ps.optimizers import Optimizer
from paddlecloud.ps.session import Session

# Paddle has no kernels of theirs for a sparse gradient.
_WITHOUT_SPARSE = (paddle.optimizer.AdamW, paddle.optimizer.Adadelta, paddle.optimizer.Adamax)

# `l1` and `l2`, as far as there are any.
Decay = dict[str, Any]


def refuse_unknown(optimizer: Any) -> None:
    """Only what the servers compute as Paddle does is accepted."""
    kind = type(optimizer)
    if kind not in _RULES:
        raise ValueError(
            f"the parameter servers do not support {kind.__name__}; "
            "use SGD, Momentum, Adam, AdamW, Adagrad, RMSProp, Adadelta or Adamax of `paddle.optimizer`"
        )
    if getattr(optimizer, "_amsgrad", False):
        raise ValueError(f"the parameter servers do not support `amsgrad` of {kind.__name__}; leave it out")
    if not paddle.in_dynamic_mode():
        raise ValueError(
            "the parameter servers do not support static graph mode; call `paddle.disable_static()` first"
        )


def refuse_clip(optimizer: Any, session: Session, clip: str | None) -> None:
    """Paddle clips the mean of the gradients, but no server has it whole and no trainer has it before the update."""
    if clip not in (None, "each"):
        raise ValueError(f"`clip` must be None or 'each', not {clip!r}")
    if clip == "each" or session.trainers == 1 or session.mode != "sync":
        return
    used = [optimizer._grad_clip, *(group.get("grad_clip") for group in _groups(optimizer))]
    kinds = [type(clip).__name__ for clip in used if clip is not None]
    if kinds:
        raise ValueError(
            f"{kinds[0]} needs the mean of the gradients of all {session.trainers} trainers, which no trainer has; "
            "with `DistributedOptimizer(optimizer, clip='each')` each trainer clips its own gradients before the mean"
        )


def parameters(optimizer: Any) -> list[tuple[Any, dict[str, Any] | None]]:
    """Every parameter with its group."""
    if not _groups(optimizer):
        return [(tensor, None) for tensor in optimizer._param_groups]
    return [(tensor, group) for group in _groups(optimizer) for tensor in group["params"]]


def initial(optimizer: Any, tensor: Any, group: dict[str, Any] | None, rate: float = 0.0) -> Optimizer:
    """The rule of a parameter before its first step, which is the first that needs its rate."""
    if group is not None:
        optimizer._update_param_group({**group, "params": [tensor]})
    return _rule(optimizer, tensor, rate)


def current(optimizer: Any, tensor: Any) -> Optimizer:
    """The rule of the step that Paddle is in; its rate is the float32 that Paddle's kernel would get."""
    return _rule(optimizer, tensor, float(optimizer._create_param_lr((tensor, None))))


def of_sparse(optimizer: Any, tensor: Any, name: str, rule: Optimizer) -> Optimizer:
    """The rule for a sparse gradient: the one for a dense gradient, except for Adam."""
    kind = plain_kind(optimizer)
    # To add a decay, Paddle makes the gradient dense.
    if _decay(optimizer, tensor):
        return rule
    if kind in _WITHOUT_SPARSE:
        raise ValueError(
            f"{kind.__name__} does not support the sparse gradient of `{name}`, in Paddle neither; "
            "use `sparse=False`, another optimizer or `paddlecloud.ps.paddle.Embedding`"
        )
    if not isinstance(rule, optimizers.Adam):
        return rule
    if optimizer._lazy_mode:
        raise ValueError(
            f"the parameter servers do not support `lazy_mode` of Adam for the sparse gradient of `{name}`: they update all "
            "rows; leave it out, or use `paddlecloud.ps.paddle.Embedding`, which updates the rows of a step"
        )
    return replace(rule, of_sparse=True)


def plain_kind(optimizer: Any) -> type:
    """Paddle's class, also of an optimizer that is distributed already."""
    return next(kind for kind in type(optimizer).__mro__ if kind in _RULES)


def group_of(optimizer: Any, tensor: Any) -> dict[str, Any] | None:
    return next((group for found, group in parameters(optimizer) if found is tensor), None)


def slots(optimizer: Any, tensor: Any) -> tuple[str, ...]:
    """The names of the servers for the state of a parameter."""
    return initial(optimizer, tensor, group_of(optimizer, tensor)).slots()


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    found = optimizer._param_groups
    return found if found and isinstance(found[0], dict) else []


def _rule(optimizer: Any, tensor: Any, rate: float) -> Optimizer:
    return _RULES[plain_kind(optimizer)](optimizer, tensor, rate, _decay(optimizer, tensor))


def _decay(optimizer: Any, tensor: Any) -> Decay:
    """The parameter's own regularizer (`ParamAttr`, or its group's `weight_decay`) replaces that of the optimizer."""
    own = getattr(tensor, "regularizer", None)
    return _coefficient(optimizer.regularization if own is None else own)


def _coefficient(regularizer: Any) -> Decay:
    if regularizer is None:
        return {}
    if type(regularizer) is L1Decay:
        return {"l1": float(regularizer._coeff)}
    if type(regularizer) is L2Decay:
        return {"l2": float(regularizer._coeff)}
    raise ValueError(
        f"the parameter servers do not support the regularizer {type(regularizer).__name__}; use L1Decay or L2Decay"
    )


def _sgd(optimizer: Any, tensor: Any, rate: float, decay: Decay) -> Optimizer:
    return optimizers.SGD(rate, **decay)


def _momentum(optimizer: Any, tensor: Any, rate: float, decay: Decay) -> Optimizer:
    if float(optimizer._rescale_grad) != 1.0:
        raise ValueError(
            "the parameter servers do not support `rescale_grad` of Momentum, which Paddle ignores on a CPU; multiply the loss"
        )
    # Paddle's kernel adds L2Decay itself. It adds that of the optimizer also to an L1Decay of the optimizer.
    if getattr(tensor, "regularizer", None) is None and optimizer._regularization_method == "l2_decay":
        decay = {**decay, "l2": decay.get("l2", 0.0) + float(optimizer._regularization_coeff)}
    return optimizers.Momentum(rate, float(optimizer._momentum), bool(optimizer._use_nesterov), **decay)


def _adam(optimizer: Any, tensor: Any, rate: float, decay: Decay) -> Optimizer:
    return optimizers.Adam(rate, *_betas(optimizer), _number(optimizer._epsilon), **decay)


def _adamw(optimizer: Any, tensor: Any, rate: float, decay: Decay) -> Optimizer:
    chosen = optimizer._apply_decay_param_fun
    share = 0.0 if chosen is not None and not chosen(tensor.name) else float(optimizer._weight_decay)
    if optimizer._lr_ratio is not None:
        rate *= float(optimizer._lr_ratio(tensor))
    return optimizers.AdamW(rate, *_betas(optimizer), _number(optimizer._epsilon), share, **decay)


def _adagrad(optimizer: Any, tensor: Any, rate: float, decay: Decay) -> Optimizer:
    start = float(optimizer.initial_accumulator_value)
    return optimizers.Adagrad(rate, _number(optimizer._epsilon), initial=start, **decay)


def _rmsprop(optimizer: Any, tensor: Any, rate: float, decay: Decay) -> Optimizer:
    return optimizers.RMSProp(
        *(rate, float(optimizer._rho), float(optimizer._momentum), _number(optimizer._epsilon)),
        centered=bool(optimizer._centered),
        **decay,
    )


def _adadelta(optimizer: Any, tensor: Any, rate: float, decay: Decay) -> Optimizer:
    return optimizers.AdaDelta(rate, float(optimizer._rho), _number(optimizer._epsilon), **decay)


def _adamax(optimizer: Any, tensor: Any, rate: float, decay: Decay) -> Optimizer:
    betas = _number(optimizer._beta1), _number(optimizer._beta2)
    return optimizers.Adamax(rate, *betas, _number(optimizer._epsilon), **decay)


def _number(value: Any) -> float:
    found: Any = value.item() if isinstance(value, paddle.Tensor) else value
    return float(found)


def _betas(optimizer: Any) -> tuple[float, float]:
    return _beta(optimizer._beta1, "beta1", 0.9), _beta(optimizer._beta2, "beta2", 0.999)


def _beta(value: Any, name: str, start: float) -> float:
    """Paddle begins the power of a beta that is a Tensor at this number, whatever the Tensor holds."""
    if isinstance(value, paddle.Tensor) and _number(value) != np.float32(start):
        raise ValueError(
            f"the parameter servers do not support a Tensor of {_number(value):g} as `{name}`: Paddle corrects its bias as if "
            f"it began at {start}; give a float"
        )
    return start if isinstance(value, paddle.Tensor) else float(value)


_RULES: dict[type, Callable[[Any, Any, float, Decay], Optimizer]] = {
    paddle.optimizer.SGD: _sgd,
    paddle.optimizer.Momentum: _momentum,
    paddle.optimizer.Adam: _adam,
    paddle.optimizer.AdamW: _adamw,
    paddle.optimizer.Adagrad: _adagrad,
    paddle.optimizer.RMSProp: _rmsprop,
    paddle.optimizer.Adadelta: _adadelta,
    paddle.optimizer.Adamax: _adamax,
}
