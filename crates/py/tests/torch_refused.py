"""Rows of what programs do that is refused, beyond arguments: each raises an error with its sentence."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import torch
from test_ps_team import Team
from torch_behaviour import ON_SERVERS, Words
from torch_programs import batch, network, squared_error
from torch_rows import Refused, make

from paddlecloud import ps
from paddlecloud.ps.torch import DistributedOptimizer

Change = Callable[[Any], Any]
UNDONE = "`group0.0` was changed in place after the first step; the parameter servers would undo that"
COPIED = "a distributed optimizer cannot be copied or pickled; use `state_dict()`"


class Mine(torch.optim.SGD):
    """An optimizer of the program's own."""


def sgd(parameters: Any, **options: Any) -> Any:
    return torch.optim.SGD(parameters, **{"lr": 0.05, "momentum": 0.9, **options})


def wrapped(optimizer: Any) -> Any:
    return DistributedOptimizer(optimizer, ps.connect(stall=0))


def parameter(make_tensor: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: wrapped(sgd([torch.nn.Parameter(make_tensor())]))


def train(model: Any, optimizer: Any, number: int = 0) -> None:
    optimizer.zero_grad()
    squared_error(model, batch(0, number)).backward()
    optimizer.step()


def steps(change: Callable[[Any, Any], Any], model: Callable[[], Any] = network, **options: Any) -> Callable[[], Any]:
    """A program that changes its model or optimizer between two steps."""

    def act() -> None:
        trained = model()
        optimizer = wrapped(sgd(list(trained.parameters()), **options))
        train(trained, optimizer)
        with torch.no_grad():
            change(trained, optimizer)
        train(trained, optimizer, 1)

    return act


def changed(change: Change) -> Refused:
    return Refused(UNDONE, steps(lambda model, _: change(model[0].weight)))


def group(**settings: Any) -> Callable[[], Any]:
    """A program that changes settings of its groups between two steps."""
    return steps(lambda _, optimizer: optimizer.param_groups[0].update(settings))


class Limited(torch.nn.Module):
    """An embedding whose rows are scaled down where they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(30, 4, max_norm=0.01)
        self.last = torch.nn.Linear(4, 1)

    forward = Words.forward


def sparse(make_optimizer: Callable[[Any], Any]) -> Callable[[], Any]:
    def act() -> None:
        model = Words()
        train(model, wrapped(make_optimizer(list(model.parameters()))))

    return act


def loaded_by(trainer: int, mode: str) -> Callable[[], Any]:
    """Two trainers of which one sets a value between `DistributedOptimizer` and its first step."""

    def work(session: Any) -> None:
        model = network()
        optimizer = DistributedOptimizer(sgd(model.parameters()), session)
        session.barrier()
        if session.trainer == trainer:
            model[0].bias.data.fill_(3)
        try:
            train(model, optimizer)
        finally:
            session.close()

    def act() -> None:
        Team(2, 2, mode=mode).each(work)

    return act


def twice() -> Any:
    weight = torch.nn.Parameter(torch.ones(2))
    return wrapped(sgd([weight, weight]))


def replaced_step() -> Any:
    optimizer = sgd(network().parameters())
    optimizer.step = lambda: None
    return wrapped(optimizer)


class Scaler:
    """What an enabled GradScaler asks first."""

    def step(self, optimizer: Any) -> Any:
        return optimizer._step_supports_amp_scaling


def two_optimizers() -> Any:
    session = ps.connect(stall=0)
    return [DistributedOptimizer(sgd(network().parameters()), session) for _ in range(2)]


REFUSED: dict[str, Refused] = {
    "parameters of float64": Refused(
        "`group0.0` is float64, but the parameter servers compute in float32; use `model.float()`",
        parameter(lambda: torch.ones(2, dtype=torch.float64)),
    ),
    "parameters of bfloat16": Refused(
        "`group0.0` is bfloat16, but the parameter servers compute in float32; use `model.float()`",
        parameter(lambda: torch.ones(2, dtype=torch.bfloat16)),
    ),
    "parameters of float16": Refused(
        "`group0.0` is float16, but the parameter servers compute in float32; use `model.float()`",
        parameter(lambda: torch.ones(2, dtype=torch.float16)),
    ),
    "parameters of complex64": Refused(
        "`group0.0` is complex64, but the parameter servers compute in float32; use `model.float()`",
        parameter(lambda: torch.ones(2, dtype=torch.complex64)),
    ),
    "parameters on another device": Refused(
        "`group0.0` is on meta, but the parameter servers need it on the CPU; use `model.cpu()`",
        parameter(lambda: torch.ones(2, device="meta")),
    ),
    "parameters without a shape, as of `LazyLinear`": Refused(
        "`group0.0` has no shape yet; run the model once before `DistributedOptimizer`",
        lambda: wrapped(sgd(torch.nn.LazyLinear(3).parameters())),
    ),
    "a parameter twice in a group": Refused(
        "a group has a parameter twice; the parameter servers update it once in a step", twice
    ),
    "a parameter that is not of `model=`": Refused(
        "parameter 0 of group 0 is none of `model`; give a model that contains all parameters",
        lambda: DistributedOptimizer(sgd(network().parameters()), ps.connect(stall=0), model=network()),
    ),
    "two optimizers of one session without `model=`": Refused(
        "this session has a tensor `group0.0` already; give one `model=` that contains the parameters of all optimizers",
        two_optimizers,
    ),
    "weights changed after the first step by `clamp_`": changed(lambda weight: weight.clamp_(-0.01, 0.01)),
    "weights changed by `.data`": changed(lambda weight: weight.data.clamp_(-0.01, 0.01)),
    "weights changed by `copy_`": changed(lambda weight: weight.copy_(torch.ones_like(weight))),
    "weights replaced by `.data =`": changed(lambda weight: setattr(weight, "data", weight.data * 2)),
    "weights changed by `vector_to_parameters`": changed(
        lambda weight: torch.nn.utils.vector_to_parameters(torch.ones(weight.numel()), [weight])
    ),
    "`load_state_dict` of the model after the first step": Refused(
        UNDONE, steps(lambda model, _: model.load_state_dict(network().state_dict()))
    ),
    "`max_norm` of an embedding": Refused(UNDONE, steps(lambda *_: None, model=Limited)),
    "values that only one trainer sets before its first step": Refused(
        "`group0.1` has other values in trainer 1 than in trainer 0", loaded_by(1, "sync")
    ),
    "values set before the first step in asynchronous training": Refused(
        "`group0.1` was changed after `DistributedOptimizer`; in asynchronous training set parameters before",
        loaded_by(0, "async"),
    ),
    "momentum that becomes 0": Refused("`momentum` cannot become or stop being 0", group(momentum=0)),
    "momentum that stops being 0": Refused(
        "`momentum` cannot become or stop being 0",
        steps(lambda _, optimizer: optimizer.param_groups[0].update(momentum=0.9), momentum=0),
    ),
    "a setting of this page that is switched on later": Refused(
        "the parameter servers do not support `differentiable` of SGD", group(differentiable=True)
    ),
    "sparse gradients with other optimizers than SGD and Adagrad": Refused(
        "`group0.0` has a sparse gradient, which PyTorch supports for SGD and Adagrad only",
        sparse(lambda parameters: make("Adam", parameters)),
    ),
    "sparse gradients with `weight_decay`": Refused(
        "`group0.0` has a sparse gradient, for which PyTorch has no `weight_decay`; set it to 0",
        sparse(lambda parameters: sgd(parameters, weight_decay=0.1)),
    ),
    "an enabled `GradScaler`": Refused(
        "a GradScaler skips steps on one trainer only", lambda: Scaler().step(wrapped(sgd(network().parameters())))
    ),
    "an optimizer of the program's own class": Refused(
        "the parameter servers do not support Mine; use SGD", lambda: wrapped(Mine(network().parameters(), lr=0.1))
    ),
    "an optimizer whose `step` was replaced": Refused(
        "`step` of this optimizer was replaced; call `DistributedOptimizer` before what replaces it", replaced_step
    ),
    "an optimizer that is distributed already": Refused(
        "this optimizer is distributed already; use the object that `DistributedOptimizer` returned",
        lambda: wrapped(wrapped(sgd(network().parameters()))),
    ),
    "a copy of a distributed optimizer": Refused(
        COPIED, lambda: copy.deepcopy(wrapped(sgd(network().parameters()))).step()
    ),
    "a pickled distributed optimizer": Refused(
        COPIED, lambda: pickle.loads(pickle.dumps(wrapped(sgd(network().parameters())))).step()
    ),
    "`optimizer.state`": Refused(ON_SERVERS, lambda: wrapped(sgd(network().parameters())).state),
}
