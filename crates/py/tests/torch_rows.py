"""What PyTorch's optimizers, schedulers and clipping functions take, and what becomes of it with parameter servers: a row for each.

`test_torch_differential.py` runs the rows and compares the names with those of the installed PyTorch; `torch_page.py` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import lr_scheduler, swa_utils
from torch_programs import Program, Run

TORCH_2 = "only newer versions have it"
TORCH_1 = "only older versions have it"


@dataclass(frozen=True)
class Works:
    """A program that uses it, and one without it whose result differs."""

    program: Program
    otherwise: Program
    only: str = ""


@dataclass(frozen=True)
class Refused:
    """What raises a ValueError or TypeError with the sentence."""

    sentence: str
    act: Callable[[], Any]
    only: str = ""


@dataclass(frozen=True)
class NoEffect:
    """It does not change a result of PyTorch either: a program that uses it, and one without it. Some have no value to give."""

    reason: str
    only: str = ""
    program: Program | None = None
    otherwise: Program | None = None


@dataclass(frozen=True)
class Elsewhere:
    """It works; another row or test shows it."""

    where: str
    only: str = ""


Row = Works | Refused | NoEffect | Elsewhere

# Arguments that every program gives, as they have no usual value or their default is too slow for 20 steps.
USUAL: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.05},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01},
    "Adagrad": {"lr": 0.05},
    "RMSprop": {"lr": 0.004},
    "Adadelta": {"lr": 1.0},
    "Adamax": {"lr": 0.01},
}


def make(name: str, parameters: Any, **arguments: Any) -> Any:
    return getattr(torch.optim, name)(parameters, **{**USUAL[name], **arguments})


def using(name: str, **arguments: Any) -> Program:
    """A program with an optimizer."""
    return Program(lambda parameters: make(name, parameters, **arguments))


def value(name: str, only: str = "", beside: dict[str, Any] | None = None, **arguments: Any) -> Works:
    """The optimizer with the arguments, compared with the one without; both have those of `beside`."""
    beside = beside or {}
    return Works(using(name, **beside, **arguments), using(name, **beside), only)


def refused(name: str, sentence: str, only: str = "", **arguments: Any) -> Refused:
    return Refused(sentence, lambda: wrapped(name, **arguments), only)


def wrapped(name: str, **arguments: Any) -> Any:
    from paddlecloud import ps
    from paddlecloud.ps.torch import DistributedOptimizer

    # Muon takes matrices only.
    parameters = [torch.nn.Parameter(torch.ones(2, 2))]
    arguments = {**USUAL.get(name, {}), **arguments}
    return DistributedOptimizer(getattr(torch.optim, name)(parameters, **arguments), ps.connect(stall=0))


FASTER = "how PyTorch computes its own update, not what"
IS_TORCH_1 = torch.__version__.startswith("1.")


def no_effect(name: str, reason: str, only: str = "", **arguments: Any) -> NoEffect:
    """The optimizer with the arguments gives the numbers of the one without."""
    return NoEffect(reason, only, using(name, **arguments), using(name))


def faster(name: str) -> NoEffect:
    return no_effect(name, FASTER, foreach=True)


def fused(name: str) -> NoEffect:
    # Of the older versions, only Adam has it, for graphics cards.
    return no_effect(name, FASTER, "" if name == "Adam" else TORCH_2, fused=not IS_TORCH_1)


def differentiable(name: str, only: str = "") -> Refused:
    sentence = f"the parameter servers do not support `differentiable` of {name}; set differentiable=False"
    return refused(name, sentence, only, differentiable=True)


def capturable(name: str, only: str = "") -> Refused:
    return refused(name, f"the parameter servers do not support `capturable` of {name}; set capturable=False", only, capturable=True)


def amsgrad(name: str) -> Refused:
    return refused(name, f"the parameter servers do not support `amsgrad` of {name}; set amsgrad=False", amsgrad=True)


def of_adam(name: str) -> dict[str, Row]:
    return {
        "lr": value(name, lr=0.02),
        "betas": value(name, betas=(0.8, 0.95)),
        "eps": value(name, eps=0.1),
        "weight_decay": value(name, weight_decay=0.5),
        "amsgrad": amsgrad(name),
        "foreach": faster(name),
        "maximize": value(name, maximize=True),
        "capturable": capturable(name),
        "differentiable": differentiable(name, TORCH_2 if name == "AdamW" else ""),
        "fused": fused(name),
    }


OPTIMIZERS: dict[str, dict[str, Row]] = {
    "SGD": {
        "lr": value("SGD", lr=0.02),
        "momentum": value("SGD", momentum=0.9),
        "dampening": value("SGD", dampening=0.4, beside={"momentum": 0.9}),
        "weight_decay": value("SGD", weight_decay=0.1),
        "nesterov": value("SGD", nesterov=True, beside={"momentum": 0.9}),
        "maximize": value("SGD", maximize=True, beside={"lr": 0.001}),
        "foreach": faster("SGD"),
        "differentiable": differentiable("SGD"),
        "fused": fused("SGD"),
    },
    "Adam": {
        **of_adam("Adam"),
        "decoupled_weight_decay": value(
            "Adam", TORCH_2, decoupled_weight_decay=True, beside={"weight_decay": 0.5}
        ),
    },
    "AdamW": of_adam("AdamW"),
    "Adagrad": {
        "lr": value("Adagrad", lr=0.02),
        "lr_decay": value("Adagrad", lr_decay=0.1),
        "weight_decay": value("Adagrad", weight_decay=0.1),
        "initial_accumulator_value": value("Adagrad", initial_accumulator_value=0.5),
        "eps": value("Adagrad", eps=0.1),
        "foreach": faster("Adagrad"),
        "maximize": value("Adagrad", maximize=True),
        "differentiable": differentiable("Adagrad", TORCH_2),
        "fused": fused("Adagrad"),
    },
    "RMSprop": {
        "lr": value("RMSprop", lr=0.002),
        "alpha": value("RMSprop", alpha=0.8),
        "eps": value("RMSprop", eps=0.1),
        "weight_decay": value("RMSprop", weight_decay=0.1),
        "momentum": value("RMSprop", momentum=0.5),
        "centered": value("RMSprop", centered=True),
        "capturable": capturable("RMSprop", TORCH_2),
        "foreach": faster("RMSprop"),
        "maximize": value("RMSprop", maximize=True),
        "differentiable": differentiable("RMSprop"),
    },
    "Adadelta": {
        "lr": value("Adadelta", lr=0.5),
        "rho": value("Adadelta", rho=0.7),
        "eps": value("Adadelta", eps=1e-3),
        "weight_decay": value("Adadelta", weight_decay=0.5),
        "foreach": faster("Adadelta"),
        "capturable": capturable("Adadelta", TORCH_2),
        "maximize": value("Adadelta", maximize=True, beside={"lr": 0.1, "eps": 1e-3}),
        "differentiable": differentiable("Adadelta", TORCH_2),
    },
    "Adamax": {
        "lr": value("Adamax", lr=0.02),
        "betas": value("Adamax", betas=(0.8, 0.95)),
        "eps": value("Adamax", eps=0.1),
        "weight_decay": value("Adamax", weight_decay=0.5),
        "foreach": faster("Adamax"),
        "maximize": value("Adamax", maximize=True),
        "differentiable": differentiable("Adamax", TORCH_2),
        "capturable": capturable("Adamax", TORCH_2),
    },
}

# Classes that are refused with all of their arguments, and arguments without which they cannot be made.
OTHER_OPTIMIZERS: dict[str, tuple[dict[str, Any], str]] = {
    "ASGD": ({}, ""),
    "LBFGS": ({}, ""),
    "NAdam": ({}, ""),
    "RAdam": ({}, ""),
    "Rprop": ({}, ""),
    "SparseAdam": ({}, ""),
    "Adafactor": ({}, TORCH_2),
    "Muon": ({}, TORCH_2),
}


def schedule(name: str, **arguments: Any) -> Callable[[Any], Any]:
    return lambda optimizer: getattr(swa_utils if name == "SWALR" else lr_scheduler, name)(optimizer, **arguments)


def scheduled(make_scheduler: Callable[[Any], Any] | None, **changes: Any) -> Program:
    program = using("SGD", momentum=0.9).but(scheduler=make_scheduler, **changes)
    return program


def rate(name: str, base: dict[str, Any], otherwise: dict[str, Any] | None = None, only: str = "", **arguments: Any) -> Works:
    """A scheduler with the arguments, compared with one without them, or with others where they are required."""
    return Works(
        scheduled(schedule(name, **base, **arguments)), scheduled(schedule(name, **base, **(otherwise or {}))), only
    )


def prints(program: Program, otherwise: Program) -> NoEffect:
    return NoEffect("it prints", TORCH_1, program, otherwise)


def verbose(name: str, base: dict[str, Any]) -> NoEffect:
    return prints(scheduled(schedule(name, **base, verbose=True)), scheduled(schedule(name, **base)))


def resumed(name: str, base: dict[str, Any], **changes: Any) -> dict[str, Row]:
    """The arguments that all schedulers have."""

    def program(last_epoch: int) -> Program:
        def optimizer(parameters: Any) -> Any:
            group = {"params": parameters, "initial_lr": 0.05, "max_lr": 0.1, "min_lr": 0.001}
            group.update(base_momentum=0.8, max_momentum=0.95)
            return torch.optim.SGD([group], lr=0.05, momentum=0.9)

        return Program(optimizer, scheduler=schedule(name, **base, last_epoch=last_epoch), **changes)

    return {"last_epoch": Works(program(4), program(-1)), "verbose": verbose(name, base)}


def half(number: int) -> float:
    return 0.5 if number % 3 == 0 else 1.0


def triangle(x: float) -> float:
    return x * x


def one_cycle(**arguments: Any) -> Callable[[Any], Any]:
    return schedule("OneCycleLR", **{"max_lr": 0.1, "total_steps": 25, **arguments})


def one_cycle_row(otherwise: dict[str, Any] | None = None, **arguments: Any) -> Works:
    return Works(scheduled(one_cycle(**arguments)), scheduled(one_cycle(**(otherwise or {}))))


def cyclic(**arguments: Any) -> Callable[[Any], Any]:
    return schedule("CyclicLR", **{"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4, **arguments})


def cyclic_row(beside: dict[str, Any] | None = None, **arguments: Any) -> Works:
    beside = beside or {}
    return Works(scheduled(cyclic(**beside, **arguments)), scheduled(cyclic(**beside)))


# What a validation would report: better for a few steps, then hardly.
METRICS = [5.0, 4.0, 3.0, 2.5, *(2.5 - 0.000001 * at for at in range(30))]


def plateau(**arguments: Any) -> Program:
    arguments = {"patience": 2, "factor": 0.5, **arguments}
    return scheduled(schedule("ReduceLROnPlateau", **arguments)).but(
        schedule=lambda run: run.scheduler.step(METRICS[run.number])
    )


def plateau_row(beside: dict[str, Any] | None = None, **arguments: Any) -> Works:
    beside = beside or {}
    return Works(plateau(**beside, **arguments), plateau(**beside))


def restarts_row(otherwise: dict[str, Any] | None = None, **arguments: Any) -> Works:
    return rate("CosineAnnealingWarmRestarts", {}, {"T_0": 5, **(otherwise or {})}, **{"T_0": 5, **arguments})


def chain(optimizer: Any) -> Any:
    first = lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=4)
    return lr_scheduler.ChainedScheduler([first, lr_scheduler.ExponentialLR(optimizer, gamma=0.9)])


def sequence(milestone: int, last_epoch: int = -1, **arguments: Any) -> Callable[[Any], Any]:
    def build(optimizer: Any) -> Any:
        first = lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=4)
        second = lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        return lr_scheduler.SequentialLR(
            optimizer, schedulers=[first, second], milestones=[milestone], last_epoch=last_epoch, **arguments
        )

    return build


STEP, MULTI, CONSTANT, SWA = {"step_size": 4}, {"milestones": [4, 9]}, {"total_iters": 6}, {"swa_lr": 0.1}

SCHEDULERS: dict[str, dict[str, Row]] = {
    "LambdaLR": {
        "lr_lambda": Works(scheduled(schedule("LambdaLR", lr_lambda=half)), scheduled(None)),
        **resumed("LambdaLR", {"lr_lambda": half}),
    },
    "MultiplicativeLR": {
        "lr_lambda": Works(scheduled(schedule("MultiplicativeLR", lr_lambda=half)), scheduled(None)),
        **resumed("MultiplicativeLR", {"lr_lambda": half}),
    },
    "StepLR": {
        "step_size": rate("StepLR", {}, STEP, step_size=7),
        "gamma": rate("StepLR", STEP, gamma=0.5),
        **resumed("StepLR", STEP),
    },
    "MultiStepLR": {
        "milestones": rate("MultiStepLR", {}, MULTI, milestones=[2]),
        "gamma": rate("MultiStepLR", MULTI, gamma=0.5),
        **resumed("MultiStepLR", MULTI),
    },
    "ConstantLR": {
        "factor": rate("ConstantLR", CONSTANT, factor=0.7),
        "total_iters": rate("ConstantLR", {}, total_iters=9),
        **resumed("ConstantLR", CONSTANT),
    },
    "LinearLR": {
        "start_factor": rate("LinearLR", {}, start_factor=0.8),
        "end_factor": rate("LinearLR", {}, end_factor=0.5),
        "total_iters": rate("LinearLR", {}, total_iters=12),
        **resumed("LinearLR", {}),
    },
    "ExponentialLR": {
        "gamma": rate("ExponentialLR", {}, {"gamma": 0.95}, gamma=0.8),
        # PyTorch 2 reads it only if the program gives the epoch.
        **resumed("ExponentialLR", {"gamma": 0.9}, schedule=lambda run: run.scheduler.step(run.scheduler.last_epoch + 1)),
    },
    "PolynomialLR": {
        "total_iters": rate("PolynomialLR", {}, total_iters=30),
        "power": rate("PolynomialLR", {}, power=2.0),
        **resumed("PolynomialLR", {"total_iters": 30}),
    },
    "CosineAnnealingLR": {
        "T_max": rate("CosineAnnealingLR", {}, {"T_max": 10}, T_max=30),
        "eta_min": rate("CosineAnnealingLR", {"T_max": 10}, eta_min=0.01),
        **resumed("CosineAnnealingLR", {"T_max": 10}),
    },
    "CosineAnnealingWarmRestarts": {
        "T_0": restarts_row(T_0=8),
        "T_mult": restarts_row(T_mult=2),
        "eta_min": restarts_row(eta_min=0.01),
        **resumed("CosineAnnealingWarmRestarts", {"T_0": 8}),
    },
    "ChainedScheduler": {
        "schedulers": Works(scheduled(chain), scheduled(None)),
    },
    "SequentialLR": {
        "schedulers": Works(scheduled(sequence(5)), scheduled(None)),
        "milestones": Works(scheduled(sequence(9)), scheduled(sequence(5))),
        "last_epoch": Works(scheduled(sequence(9, last_epoch=4)), scheduled(sequence(9))),
        "verbose": prints(scheduled(sequence(9, verbose=True)), scheduled(sequence(9))),
    },
    "ReduceLROnPlateau": {
        "mode": plateau_row(mode="max"),
        "factor": plateau_row(factor=0.1),
        "patience": plateau_row(patience=5),
        "threshold": plateau_row(threshold=0.3),
        "threshold_mode": plateau_row({"threshold": 0.3}, threshold_mode="abs"),
        "cooldown": plateau_row(cooldown=4),
        "min_lr": plateau_row(min_lr=0.04),
        "eps": plateau_row(eps=0.1),
        "verbose": prints(plateau(verbose=True), plateau()),
    },
    "SWALR": {
        "swa_lr": rate("SWALR", {}, SWA, swa_lr=0.02),
        "anneal_epochs": rate("SWALR", SWA, anneal_epochs=4),
        "anneal_strategy": rate("SWALR", SWA, anneal_strategy="linear"),
        "last_epoch": Elsewhere("it is that of the other schedulers"),
    },
    "CyclicLR": {
        "base_lr": cyclic_row(base_lr=0.03),
        "max_lr": cyclic_row(max_lr=0.05),
        "step_size_up": cyclic_row(step_size_up=7),
        "step_size_down": cyclic_row(step_size_down=2),
        "mode": cyclic_row(mode="triangular2"),
        "gamma": cyclic_row({"mode": "exp_range"}, gamma=0.8),
        "scale_fn": cyclic_row(scale_fn=triangle),
        "scale_mode": cyclic_row({"scale_fn": lambda x: 0.9**x}, scale_mode="iterations"),
        "cycle_momentum": cyclic_row(cycle_momentum=False),
        "base_momentum": cyclic_row(base_momentum=0.5),
        "max_momentum": cyclic_row(max_momentum=0.85),
        **resumed("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 6}),
    },
    "OneCycleLR": {
        "max_lr": one_cycle_row(max_lr=0.05),
        "total_steps": one_cycle_row(total_steps=40),
        "epochs": one_cycle_row(total_steps=None, epochs=5, steps_per_epoch=7),
        "steps_per_epoch": one_cycle_row(total_steps=None, epochs=5, steps_per_epoch=9),
        "pct_start": one_cycle_row(pct_start=0.6),
        "anneal_strategy": one_cycle_row(anneal_strategy="linear"),
        "cycle_momentum": one_cycle_row(cycle_momentum=False),
        "base_momentum": one_cycle_row(base_momentum=0.6),
        "max_momentum": one_cycle_row(max_momentum=0.9),
        "div_factor": one_cycle_row(div_factor=5),
        "final_div_factor": one_cycle_row({"pct_start": 0.1, "total_steps": 20}, pct_start=0.1, total_steps=20, final_div_factor=2),
        "three_phase": one_cycle_row(three_phase=True),
        **resumed("OneCycleLR", {"max_lr": 0.1, "total_steps": 30}),
    },
}


def clipped(clip: Callable[[Run], Any]) -> Program:
    return using("SGD", momentum=0.9).but(clip=clip)


def by_norm(name: str, **arguments: Any) -> Program:
    return clipped(lambda run: getattr(torch.nn.utils, name)(run.parameters(), **arguments))


def first_only(name: str, **arguments: Any) -> Program:
    return clipped(lambda run: getattr(torch.nn.utils, name)(run.parameters()[:1], **arguments))


def norm_rows(name: str, only: str = "") -> dict[str, Row]:
    small = {"max_norm": 0.1}
    return {
        "parameters": Works(first_only(name, **small), by_norm(name, **small), only),
        "max_norm": Works(by_norm(name, **small), using("SGD", momentum=0.9), only),
        "norm_type": Works(by_norm(name, **small, norm_type=1.0), by_norm(name, **small), only),
        "error_if_nonfinite": NoEffect(
            "it raises in the program itself", only, by_norm(name, **small, error_if_nonfinite=True), by_norm(name, **small)
        ),
        "foreach": NoEffect(FASTER, TORCH_2, by_norm(name, **small, foreach=True), by_norm(name, **small)),
    }


def total_norm(run: Run, **arguments: Any) -> Any:
    return torch.nn.utils.get_total_norm([tensor.grad for tensor in run.parameters()], **arguments)


def measured(**arguments: Any) -> NoEffect:
    """A program that only asks for the norm."""
    return NoEffect("it changes nothing", TORCH_2, clipped(lambda run: total_norm(run, **arguments)), using("SGD", momentum=0.9))


def with_norm(first: int = 0, max_norm: float = 0.1, times: float = 1.0, **arguments: Any) -> Program:
    """A program that clips its parameters from the first one on by a norm it has computed itself."""

    def clip(run: Run) -> None:
        norm = times * total_norm(run)
        torch.nn.utils.clip_grads_with_norm_(run.parameters()[first:], max_norm, norm, **arguments)

    return clipped(clip)


CLIPPING: dict[str, dict[str, Row]] = {
    "clip_grad_norm_": norm_rows("clip_grad_norm_"),
    "clip_grad_norm": norm_rows("clip_grad_norm"),
    "clip_grad_value_": {
        "parameters": Works(first_only("clip_grad_value_", clip_value=0.1), by_norm("clip_grad_value_", clip_value=0.1)),
        "clip_value": Works(by_norm("clip_grad_value_", clip_value=0.1), using("SGD", momentum=0.9)),
        "foreach": NoEffect(
            FASTER,
            TORCH_2,
            by_norm("clip_grad_value_", clip_value=0.1, foreach=True),
            by_norm("clip_grad_value_", clip_value=0.1),
        ),
    },
    "clip_grads_with_norm_": {
        "parameters": Works(with_norm(first=2), with_norm(), TORCH_2),
        "max_norm": Works(with_norm(max_norm=0.05), with_norm(), TORCH_2),
        "total_norm": Works(with_norm(times=0.5), with_norm(), TORCH_2),
        "foreach": NoEffect(FASTER, TORCH_2, with_norm(foreach=True), with_norm()),
    },
    "get_total_norm": {
        "tensors": measured(),
        "norm_type": measured(norm_type=1.0),
        "error_if_nonfinite": measured(error_if_nonfinite=True),
        "foreach": measured(foreach=True),
    },
}
