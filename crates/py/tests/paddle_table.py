"""One row for every class, argument, group key and method of Paddle's optimizers: it works, is refused, or has no effect in Paddle.

`test_paddle_differential` asks Paddle for the names; a name without a row here fails. `paddle_page` makes the reference of it.
"""

from dataclasses import dataclass

import paddle
from paddle.nn import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
from paddle.regularizer import L1Decay, L2Decay
from paddle_programs import Make, Program

KINDS = ("SGD", "Momentum", "Adam", "AdamW", "Adagrad", "RMSProp", "Adadelta", "Adamax")
BASE = {
    "SGD": Program("SGD", {"learning_rate": 0.1}),
    "Momentum": Program("Momentum", {"learning_rate": 0.02}),
    "Adam": Program("Adam", {"learning_rate": 0.02}),
    "AdamW": Program("AdamW", {"learning_rate": 0.02}),
    "Adagrad": Program("Adagrad", {"learning_rate": 0.05}),
    # At a higher rate its steps at first are so large that training doubles every rounding.
    "RMSProp": Program("RMSProp", {"learning_rate": 0.005}),
    "Adadelta": Program("Adadelta", {"learning_rate": 1.0}),
    "Adamax": Program("Adamax", {"learning_rate": 0.02}),
}


@dataclass(frozen=True)
class Works:
    """The program gives Paddle's numbers, which differ from those of `base`."""

    program: Program
    base: Program


@dataclass(frozen=True)
class Refused:
    """The program ends with this sentence."""

    program: Program
    sentence: str
    error: type = ValueError


@dataclass(frozen=True)
class Nothing:
    """It changes no number in Paddle either."""

    reason: str
    program: Program | None = None
    base: Program | None = None


FLOAT32 = "concerns parameters of 16 bits; those of float32 have no master weights"
NAMES = "a prefix of the keys of `state_dict`"
TENSORS = "the same numbers with fewer kernels"

# Values of constructor arguments. A dictionary is the value with others that it needs, which are in the base too.
COMMON = {"learning_rate": 0.01, "weight_decay": 0.3, "grad_clip": ClipGradByNorm(0.1)}
ARGUMENTS = {
    "SGD": {},
    "Momentum": {"momentum": 0.5, "use_nesterov": True},
    "Adam": {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.01},
    "AdamW": {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.01},
    "Adagrad": {"epsilon": 0.1, "initial_accumulator_value": 0.5},
    "RMSProp": {"rho": 0.5, "epsilon": 0.01, "momentum": 0.5, "centered": True},
    "Adadelta": {"epsilon": 1e-4, "rho": 0.5},
    "Adamax": {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.1},
}


def of_kind(kind):
    """The rows of a class: its arguments, and what its groups may have."""
    base = BASE[kind]
    unchanged = base.but(update=lambda run: None)
    yield kind, Works(base, unchanged)
    yield f"{kind}(parameters)", Works(base.but(parameters=lambda model: model[0].parameters()), base)
    yield f"{kind}(name)", Nothing(NAMES, base.with_arguments(name="mine"), base)
    for name, value in (COMMON | ARGUMENTS[kind]).items():
        yield f"{kind}({name})", Works(base.with_arguments(**{name: value}), base)
    groups = base.but(groups=[{}, {}])
    for name, value in (COMMON | ARGUMENTS[kind]).items():
        yield f"{kind} group: {name}", Works(base.but(groups=[{name: value}, {}]), groups)
    if kind in ("SGD", "Momentum", "Adam", "AdamW"):
        yield f"{kind}(multi_precision)", Nothing(FLOAT32, base.with_arguments(multi_precision=True), base)
    if kind in ("Momentum", "Adam"):
        yield f"{kind}(use_multi_tensor)", Nothing(TENSORS, base.with_arguments(use_multi_tensor=True), base)


def more_of_momentum():
    base, computed = BASE["Momentum"], "Paddle computes it from the `weight_decay` of the group"
    groups = base.but(groups=[{}, {}])
    sentence = "the parameter servers do not support `rescale_grad` of Momentum, which Paddle ignores on a CPU"
    yield "Momentum(rescale_grad)", Refused(base.with_arguments(rescale_grad=0.5), sentence)
    yield "Momentum group: rescale_grad", Refused(base.but(groups=[{"rescale_grad": 0.5}, {}]), sentence)
    for name, value in {"regularization_method": "l2_decay", "regularization_coeff": 0.3}.items():
        yield f"Momentum group: {name}", Nothing(computed, base.but(groups=[{name: value}, {}]), groups)
    decay = base.with_arguments(weight_decay=L1Decay(0.3))
    yield "Momentum(weight_decay) with L1Decay", Works(decay, base)
    mixed = decay.but(groups=[{"weight_decay": 0.2}, {}])
    yield "Momentum(weight_decay) with L1Decay, and L2Decay in a group", Works(mixed, decay)


def more_of_adam():
    for kind in ("Adam", "AdamW"):
        base = BASE[kind]
        dense = "concerns sparse gradients, for which it is refused"
        yield f"{kind}(lazy_mode)", Nothing(dense, base.with_arguments(lazy_mode=True), base)
        lazy = base.but(groups=[{"lazy_mode": True}, {}])
        yield f"{kind} group: lazy_mode", Nothing(dense, lazy, base.but(groups=[{}, {}]))
        sentence = f"the parameter servers do not support `amsgrad` of {kind}"
        yield f"{kind}(amsgrad)", Refused(base.with_arguments(amsgrad=True), sentence)
    base = BASE["Adam"]
    for name, start in {"beta1": 0.9, "beta2": 0.999}.items():
        same = base.with_arguments(**{name: Make(lambda start=start: paddle.to_tensor([start]))})
        yield f"Adam({name}) as a Tensor of {start}", Nothing(f"the same as {start}", same, base)
        other = base.with_arguments(**{name: Make(lambda: paddle.to_tensor([0.5]))})
        sentence = f"the parameter servers do not support a Tensor of 0.5 as `{name}`"
        yield f"Adam({name}) as a Tensor of another number", Refused(other, sentence)
    epsilon = base.with_arguments(epsilon=Make(lambda: paddle.to_tensor([0.01])))
    yield "Adam(epsilon) as a Tensor", Works(epsilon, base)
    yield "Adam(weight_decay) with L1Decay", Works(base.with_arguments(weight_decay=L1Decay(0.3)), base)


def more_of_adamw():
    base = BASE["AdamW"]
    yield "AdamW(use_lowprecision_moment)", Nothing(
        "Paddle never reads it", base.with_arguments(use_lowprecision_moment=True), base
    )
    decay = base.with_arguments(weight_decay=0.5)
    chosen = decay.with_arguments(apply_decay_param_fun=lambda name: name.endswith("w_0"))
    yield "AdamW(apply_decay_param_fun)", Works(chosen, decay)
    ratio = base.with_arguments(lr_ratio=lambda parameter: 0.5)
    yield "AdamW(lr_ratio)", Refused(ratio, "'lr_ratio' is unimplemented in CPU", NotImplementedError)


REFUSED_KINDS = ("Optimizer", "ASGD", "Lamb", "LBFGS", "NAdam", "RAdam", "Rprop")
REFUSED_INCUBATE = (
    *("DistributedFusedLamb", "GradientMergeOptimizer", "LarsMomentumOptimizer", "LookAhead", "ModelAverage"),
    *("PipelineOptimizer", "RecomputeOptimizer"),
)


def unknown(module, name):
    """An object of a class that is refused; only its class is looked at."""
    kind = getattr(module, name)
    program = Program().but(make=lambda run: kind.__new__(kind))
    return Refused(program, f"the parameter servers do not support {kind.__name__}; use SGD, Momentum, Adam, AdamW")


def refused_kinds():
    for name in REFUSED_KINDS:
        yield name, unknown(paddle.optimizer, name)
    for name in REFUSED_INCUBATE:
        yield f"incubate.{name}", unknown(paddle.incubate.optimizer, name)


def clipping():
    base, momentum = BASE["SGD"], BASE["Momentum"]
    clips = {
        "ClipGradByValue(max)": (ClipGradByValue(0.05), None),
        "ClipGradByValue(min)": (ClipGradByValue(0.05, min=-0.01), ClipGradByValue(0.05)),
        "ClipGradByNorm(clip_norm)": (ClipGradByNorm(0.1), None),
        "ClipGradByGlobalNorm(clip_norm)": (ClipGradByGlobalNorm(0.1), None),
    }
    for name, (clip, plain) in clips.items():
        yield name, Works(base.with_arguments(grad_clip=clip), base.with_arguments(grad_clip=plain))
    for name in ("ClipGradByValue", "ClipGradByNorm", "ClipGradByGlobalNorm"):
        value = getattr(paddle.nn, name)(0.05)
        yield name, Works(momentum.with_arguments(grad_clip=value), momentum)
    plain = base.with_arguments(grad_clip=ClipGradByGlobalNorm(0.1))
    grouped = base.with_arguments(grad_clip=ClipGradByGlobalNorm(0.1, group_name="mine"))
    yield "ClipGradByGlobalNorm(group_name)", Nothing("only older static graphs read it", grouped, plain)
    skips = base.with_arguments(grad_clip=ClipGradByGlobalNorm(0.1, auto_skip_clip=True))
    yield "ClipGradByGlobalNorm(auto_skip_clip)", Nothing("leaves out a multiplication by 1", skips, plain)


def regularizers():
    base = BASE["SGD"]
    for regularizer in (L1Decay, L2Decay):
        name = regularizer.__name__
        program = base.with_arguments(weight_decay=regularizer(0.3))
        yield name, Works(program, base)
        yield f"{name}(coeff)", Works(program, base.with_arguments(weight_decay=regularizer(0.1)))


def param_attr():
    base = BASE["SGD"]
    clipped = base.with_arguments(grad_clip=ClipGradByGlobalNorm(0.1))
    yield "ParamAttr", Works(base.but(attr={"learning_rate": 0.1}), base)
    named = base.but(attr={"name": Make(lambda: paddle.utils.unique_name.generate("mine"))})
    yield "ParamAttr(name)", Nothing("a name", named, base)
    constant = paddle.nn.initializer.Constant(0.1)
    yield "ParamAttr(initializer)", Works(base.but(attr={"initializer": constant}), base)
    yield "ParamAttr(learning_rate)", Works(base.but(attr={"learning_rate": 0.1}), base)
    yield "ParamAttr(regularizer)", Works(base.but(attr={"regularizer": L1Decay(0.3)}), base)
    yield "ParamAttr(trainable)", Works(base.but(attr={"trainable": False}), base)
    average = base.but(attr={"do_model_average": False})
    yield "ParamAttr(do_model_average)", Nothing("only ModelAverage reads it, which is refused", average, base)
    yield "ParamAttr(need_clip)", Works(clipped.but(attr={"need_clip": False}), clipped)
    for kind in KINDS:
        both = BASE[kind].with_arguments(weight_decay=0.2)
        own = both.but(attr={"regularizer": L1Decay(0.3)})
        yield f"ParamAttr(regularizer) and {kind}(weight_decay)", Works(own, both)


def rows():
    """All rows by name."""
    from paddle_methods import methods, programs
    from paddle_schedulers import schedulers

    found = {}
    parts = [
        *(of_kind(kind) for kind in KINDS),
        *(more_of_momentum(), more_of_adam(), more_of_adamw(), refused_kinds(), clipping(), regularizers(), param_attr()),
        *(methods(), schedulers(), programs()),
    ]
    for part in parts:
        for name, row in part:
            assert name not in found, name
            found[name] = row
    return found
