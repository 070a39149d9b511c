"""Rows of what programs do beyond arguments: methods of optimizers, and the habits of training loops."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch_programs import Program, Run, batch, network, nothing, squared_error
from torch_rows import (
    METRICS,
    TORCH_1,
    TORCH_2,
    USUAL,
    Elsewhere,
    NoEffect,
    Refused,
    Row,
    Works,
    make,
    one_cycle,
    prints,
    schedule,
    scheduled,
    using,
    wrapped,
)

ON_SERVERS = "the optimizer's state is on the parameter servers; use `state_dict()` and `load_state_dict()`"
PLAIN = using("SGD", momentum=0.9)


def closure_step(run: Run) -> None:
    """The gradients come from the closure, with another loss than the one before it."""
    gradients = [tensor.grad.clone() for tensor in run.parameters()]

    def closure() -> Any:
        assert torch.is_grad_enabled()
        for tensor, gradient in zip(run.parameters(), gradients):
            tensor.grad = 2 * gradient
        return torch.tensor(7.0)

    with torch.no_grad():
        assert run.optimizer.step(closure) == 7.0


def set_to(run: Run, none: bool) -> None:
    run.optimizer.zero_grad(set_to_none=none)


def sometimes(model: Any, x: Any) -> Any:
    """The first layer has no gradient in some steps."""
    hidden = model[0](x)
    if int(1000 * float(x[0, 0].abs())) % 2:
        hidden = hidden.detach()
    return ((model[2](model[1](hidden)) - x.sum(dim=1, keepdim=True)) ** 2).mean()


def in_groups(parameters: Any) -> Any:
    return torch.optim.SGD([{"params": parameters[:2]}], lr=0.05, momentum=0.9)


def add_group(run: Run) -> None:
    if run.number == 6:
        run.optimizer.add_param_group({"params": run.parameters()[2:], "lr": 0.01})


def save_and_load(run: Run) -> None:
    """Goes back to the optimizer's state of an earlier step."""
    if run.number == 5:
        run.kept = copy.deepcopy(run.optimizer.state_dict())
    if run.number == 12:
        run.optimizer.load_state_dict(run.kept)


def reloading(name: str) -> Works:
    arguments = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    base = using(name, **arguments)
    return Works(base.but(before=save_and_load), base)


def pre_hook(run: Run) -> None:
    def hook(*_: Any) -> None:
        for tensor in run.parameters():
            tensor.grad.mul_(0.5)

    run.optimizer.register_step_pre_hook(hook)


def post_hook(run: Run) -> None:
    def hook(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] *= 0.9

    run.optimizer.register_step_post_hook(hook)


def state_hook(method: str) -> Program:
    """A hook that changes the rate in the saved or loaded state."""
    return PLAIN.but(begin=lambda run: getattr(run.optimizer, method)(setting_rate), before=save_and_load)


def setting_rate(optimizer: Any, *state: Any) -> None:
    for group in state[0]["param_groups"] if state else optimizer.param_groups:
        group["lr"] = 0.001


def raising_rate(optimizer: Any, *state: Any) -> None:
    for group in state[0]["param_groups"] if state else optimizer.param_groups:
        group["lr"] *= 10


def state_hooks(method: str) -> dict[str, Row]:
    """The method and its arguments. Of two hooks, the second one acts first with `prepend`."""

    def two(prepend: bool) -> Program:
        def begin(run: Run) -> None:
            getattr(run.optimizer, method)(setting_rate)
            getattr(run.optimizer, method)(raising_rate, prepend=prepend)

        return PLAIN.but(begin=begin, before=save_and_load)

    return {
        method: Works(state_hook(method), PLAIN, TORCH_2),
        f"{method}(hook)": Elsewhere(method, TORCH_2),
        f"{method}(prepend)": Works(two(True), two(False), TORCH_2),
    }


METHODS: dict[str, Row] = {
    "step": Works(PLAIN, PLAIN.but(step=lambda run: run.optimizer.step() if run.number else None)),
    "step(closure)": Works(PLAIN.but(step=closure_step), PLAIN),
    "step(grad_scaler)": Refused(
        "a GradScaler skips steps on one trainer only", lambda: wrapped("Adam").step(grad_scaler=object()), TORCH_1
    ),
    "zero_grad": Works(PLAIN, PLAIN.but(clear=nothing)),
    "zero_grad(set_to_none)": Works(
        PLAIN.but(loss=sometimes, clear=lambda run: set_to(run, True)),
        PLAIN.but(loss=sometimes, clear=lambda run: set_to(run, False)),
    ),
    "add_param_group": Works(PLAIN.but(optimizer=in_groups, before=add_group), PLAIN.but(optimizer=in_groups)),
    "add_param_group(param_group)": Elsewhere("add_param_group"),
    "state_dict": Elsewhere("TestState in test_ps_torch.py"),
    "load_state_dict": reloading("SGD"),
    "load_state_dict(state_dict)": Elsewhere("load_state_dict"),
    "register_step_pre_hook": Works(PLAIN.but(begin=pre_hook), PLAIN, TORCH_2),
    "register_step_pre_hook(hook)": Elsewhere("register_step_pre_hook", TORCH_2),
    "register_step_post_hook": Works(PLAIN.but(begin=post_hook), PLAIN, TORCH_2),
    "register_step_post_hook(hook)": Elsewhere("register_step_post_hook", TORCH_2),
    **state_hooks("register_state_dict_pre_hook"),
    **state_hooks("register_state_dict_post_hook"),
    **state_hooks("register_load_state_dict_pre_hook"),
    **state_hooks("register_load_state_dict_post_hook"),
    "share_memory": Refused(ON_SERVERS, lambda: wrapped("Adagrad").share_memory()),
    "profile_hook_step": NoEffect("it is called by PyTorch", TORCH_2),
    "profile_hook_step(func)": NoEffect("it is called by PyTorch", TORCH_2),
    "OptimizerPreHook": NoEffect("a type", TORCH_2),
    "OptimizerPostHook": NoEffect("a type", TORCH_2),
}


def stepping(name: str, step: Callable[[Run], None], otherwise: Callable[[Run], None] | None = None, **arguments: Any) -> Works:
    """A program that calls its scheduler so, compared with one that only steps, or that does `otherwise`."""
    base = scheduled(schedule(name, **arguments))
    return Works(base.but(schedule=step), base if otherwise is None else base.but(schedule=otherwise))


def with_last_rate(run: Run) -> None:
    """The rate is set by the program, from what the scheduler says it was."""
    run.scheduler.step()
    for group in run.optimizer.param_groups:
        group["lr"] = 0.5 * run.scheduler.get_last_lr()[0]


def with_next_rate(run: Run) -> None:
    run.scheduler.step()
    rate = run.scheduler.get_lr()[0]
    for group in run.optimizer.param_groups:
        group["lr"] = rate


def going_back(run: Run) -> None:
    """The scheduler's state of an earlier step."""
    if run.number == 5:
        run.kept = copy.deepcopy(run.scheduler.state_dict())
    if run.number == 12:
        run.scheduler.load_state_dict(run.kept)
    run.scheduler.step()


def in_cooldown(run: Run) -> None:
    """A program that trains with a momentum of its own while the scheduler waits."""
    run.scheduler.step(METRICS[run.number])
    for group in run.optimizer.param_groups:
        group["momentum"] = 0.5 if run.scheduler.in_cooldown else 0.9


def print_rate(run: Run) -> None:
    run.scheduler.step()
    run.scheduler.print_lr(True, 0, 0.5, run.number)


GAMMA = {"gamma": 0.9}
PRINTS = prints(
    scheduled(schedule("ExponentialLR", gamma=0.9), schedule=print_rate), scheduled(schedule("ExponentialLR", gamma=0.9))
)
CALLED = "PyTorch calls it"
# Of all schedulers; an argument counts for those that have it.
SCHEDULER_METHODS: dict[str, Row] = {
    "step": stepping("ExponentialLR", lambda run: run.scheduler.step(), nothing, **GAMMA),
    "step(epoch)": stepping("ExponentialLR", lambda run: run.scheduler.step(2 * run.number), **GAMMA),
    "step(metrics)": Elsewhere("ReduceLROnPlateau"),
    "get_last_lr": stepping("ExponentialLR", with_last_rate, **GAMMA),
    "get_lr": stepping("ExponentialLR", with_next_rate, **GAMMA),
    "state_dict": stepping("StepLR", going_back, step_size=4),
    "load_state_dict": Works(
        scheduled(one_cycle()).but(schedule=going_back), scheduled(one_cycle())
    ),
    "load_state_dict(state_dict)": Elsewhere("load_state_dict"),
    "print_lr": PRINTS,
    **{f"print_lr({argument})": PRINTS for argument in ("is_verbose", "group", "lr", "epoch")},
    "in_cooldown": Works(
        scheduled(schedule("ReduceLROnPlateau", patience=2, cooldown=4)).but(schedule=in_cooldown),
        scheduled(schedule("ReduceLROnPlateau", patience=2, cooldown=4)).but(
            schedule=lambda run: run.scheduler.step(METRICS[run.number])
        ),
    ),
    **{name: NoEffect(CALLED, TORCH_1) for name in ("is_better", "is_better(a)", "is_better(best)")},
    **{name: NoEffect(CALLED) for name in ("scale_fn", "scale_fn(x)")},
    **{name: NoEffect(CALLED, TORCH_2) for name in ("recursive_undo", "recursive_undo(sched)")},
}


def changing(name: str, change: Callable[[dict[str, Any], int], None], **arguments: Any) -> Works:
    """A program that sets numbers of its groups at every step."""

    def before(run: Run) -> None:
        for group in run.optimizer.param_groups:
            change(group, run.number)

    base = using(name, **arguments)
    return Works(base.but(before=before), base)


def momenta(group: dict[str, Any], number: int) -> None:
    group["momentum"] = 0.5 + 0.02 * number


def betas(group: dict[str, Any], number: int) -> None:
    group["betas"] = (0.5 + 0.02 * number, 0.9 + 0.004 * number)


def numbers(*names: str) -> Callable[[dict[str, Any], int], None]:
    def change(group: dict[str, Any], number: int) -> None:
        for name in names:
            group[name] = (0.002 if name == "lr" else 0.01) * (number + 1)

    return change


def freeze(run: Run) -> None:
    """The first layer is frozen at first, and the second later."""
    for tensor in run.model[0].parameters():
        tensor.requires_grad = run.number >= 6
    for tensor in run.model[2].parameters():
        tensor.requires_grad = run.number < 12


def frozen_network() -> Any:
    model = network()
    for tensor in model[0].parameters():
        tensor.requires_grad = False
    return model


class Words(torch.nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self, sparse: bool = True) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.rows = torch.nn.Embedding(30, 4, sparse=sparse)
        # PyTorch adds the gradients of a row one by one; the smaller the row, the smaller their rounding errors.
        self.rows.weight.data.mul_(0.1)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.last(self.rows((x.abs() * 9).long().clamp(max=29)).mean(dim=1))


class Picture(torch.nn.Module):
    """A convolution whose weights and inputs are in channels_last."""

    def __init__(self, last: bool = True) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.first = torch.nn.Conv2d(5, 4, 3, padding=1)
        self.last = torch.nn.Linear(4, 1)
        if last:
            self.to(memory_format=torch.channels_last)

    def forward(self, x: Any) -> Any:
        image = x[:, :, None, None] * torch.linspace(0.5, 1.5, 9).reshape(1, 1, 3, 3)
        return self.last(torch.tanh(self.first(image)).mean(dim=(2, 3)))


def transposed(model: Any, x: Any) -> Any:
    """Its gradients are not contiguous."""
    return ((x @ model[0].weight.t() @ torch.ones(6, 1)) ** 2).mean() + squared_error(model, x)


class Shared(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first, self.last = torch.nn.Linear(5, 5), torch.nn.Linear(5, 1)
        self.second = torch.nn.Linear(5, 5)
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


def two_groups(parameters: Any) -> Any:
    groups = [{"params": parameters[:2], "lr": 0.01, "momentum": 0.5}, {"params": parameters[2:], "weight_decay": 0.1}]
    return torch.optim.SGD(groups, lr=0.05, momentum=0.9)


def load_model(run: Run) -> None:
    source = torch.Generator().manual_seed(11)
    values = {name: torch.randn(value.shape, generator=source) for name, value in run.model.state_dict().items()}
    run.model.load_state_dict(values)


def load_both(run: Run) -> None:
    """As programs resume: first the model, then the optimizer, after the wrap."""
    load_model(run)
    load_optimizer(run)


def load_optimizer(run: Run) -> None:
    run.optimizer.load_state_dict(trained_state(run.program))


def trained_state(program: Program) -> dict[str, Any]:
    """The state of a plain optimizer after some steps, with a rate of its own."""
    model = program.model()
    optimizer = program.optimizer(list(model.parameters()))
    for number in range(3):
        optimizer.zero_grad()
        program.loss(model, batch(9, number)).backward()
        optimizer.step()
    optimizer.param_groups[0]["lr"] *= 0.5
    return copy.deepcopy(optimizer.state_dict())


def loaded_before(parameters: Any) -> Any:
    optimizer = make("Adam", parameters)
    optimizer.load_state_dict(trained_state(using("Adam")))
    return optimizer


ADAM = using("Adam")
SPARSE = {"model": Words, "clear": lambda run: run.optimizer.zero_grad(set_to_none=True)}

PROGRAMS: dict[str, Works] = {
    "a scheduler made before `DistributedOptimizer`": Works(scheduled(one_cycle(), scheduler_first=True), PLAIN),
    "`OneCycleLR` that changes `betas`": Works(ADAM.but(scheduler=one_cycle()), ADAM),
    "momentum set at every step": changing("SGD", momenta, momentum=0.9),
    "momentum of RMSprop set at every step": changing("RMSprop", momenta, momentum=0.5),
    "betas of Adam set at every step": changing("Adam", betas),
    "betas of AdamW set at every step": changing("AdamW", betas),
    "betas of Adamax set at every step": changing("Adamax", betas),
    **{
        f"rate, decay and epsilon of {name} set at every step": changing(
            name, numbers("lr", "weight_decay", *(["eps"] if name != "SGD" else []))
        )
        for name in USUAL
    },
    "groups with their own numbers": Works(PLAIN.but(optimizer=two_groups), PLAIN),
    "gradients of several batches": Works(PLAIN.but(batches_per_step=3), PLAIN),
    "parameters frozen and unfrozen later": Works(
        PLAIN.but(before=freeze, model=frozen_network, clear=lambda run: set_to(run, True)), PLAIN
    ),
    "parameters without a gradient in some steps": Works(
        using("AdamW").but(loss=sometimes, clear=lambda run: set_to(run, True)), using("AdamW")
    ),
    "gradients with `sparse=True`, SGD": Works(
        using("SGD", momentum=0.5).but(**SPARSE), using("SGD").but(**SPARSE)
    ),
    "gradients with `sparse=True`, Adagrad": Works(using("Adagrad").but(**SPARSE), using("SGD").but(**SPARSE)),
    "parameters in `channels_last`": Works(PLAIN.but(model=Picture), using("SGD").but(model=Picture)),
    "gradients that are not contiguous": Works(PLAIN.but(loss=transposed), PLAIN),
    "parameters that two layers share": Works(PLAIN.but(model=Shared), using("SGD").but(model=Shared)),
    "names of the model (`model=`)": Works(PLAIN.but(passes_model=True), using("SGD")),
    "a model loaded before the first step": Works(PLAIN.but(begin=load_model), PLAIN),
    "an optimizer loaded before the first step": Works(ADAM.but(begin=load_optimizer), ADAM),
    "an optimizer loaded before `DistributedOptimizer`": Works(ADAM.but(optimizer=loaded_before), ADAM),
    "model and optimizer loaded before the first step": Works(ADAM.but(begin=load_both), ADAM),
    **{f"`load_state_dict` of {name} between steps": reloading(name) for name in USUAL},
}
