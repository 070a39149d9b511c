"""Small training programs of PaddlePaddle, run three ways: as they are, with parameter servers, and as two trainers in one process.

`paddle_table` has a program for every setting; `test_paddle_differential` compares the runs.
"""

import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np
import paddle

from paddlecloud import ps
from paddlecloud.ps.paddle import DistributedOptimizer

STEPS = 20
F = np.float32


@dataclass(frozen=True)
class Make:
    """A value that is made for every run, because it keeps state or belongs to one model."""

    make: Callable[[], Any]


def made(value):
    return value.make() if isinstance(value, Make) else value


def backward(run):
    """Accumulates the gradients of one batch."""
    run.loss = run.losses(run.model, run.x)
    run.loss.backward()


def update(run):
    run.optimizer.step()


def squared_error(model, x):
    return ((model(x) - x.sum(axis=1, keepdim=True)) ** 2).mean()


def rows_of(x):
    """Ids for a model that begins with an embedding."""
    return paddle.to_tensor(np.abs(x.numpy()[:, :2] * 4).astype(np.int64) % 7)


@dataclass(frozen=True, eq=False)
class Program:
    """One training program. What is not default is the setting under test."""

    kind: str = "SGD"
    arguments: dict = field(default_factory=dict)
    # The attributes of the first layer's weight.
    attr: dict = field(default_factory=dict)
    groups: list | None = None
    scheduler: Make | None = None
    after_step: Callable = lambda run: run.scheduler.step() if run.scheduler is not None else None
    losses: Callable = squared_error
    backward: Callable = backward
    update: Callable = update
    # Runs once before the first step, and after `DistributedOptimizer`.
    prepare: Callable = lambda run: None
    model: Callable | None = None
    parameters: Callable = lambda model: model.parameters()
    # Makes another optimizer than that of `kind` and `arguments`.
    make: Callable | None = None
    options: dict = field(default_factory=dict)
    clear: bool = True

    def but(self, **changes):
        return replace(self, **changes)

    def with_arguments(self, **more):
        return replace(self, arguments={**self.arguments, **more})

    def make_model(self):
        paddle.seed(3)
        if self.model is not None:
            return self.model()
        attr = paddle.ParamAttr(**{name: made(value) for name, value in self.attr.items()})
        return paddle.nn.Sequential(
            paddle.nn.Linear(5, 8, weight_attr=attr), paddle.nn.Tanh(), paddle.nn.Linear(8, 1)
        )

    def make_run(self, trainer=0):
        run = SimpleNamespace(model=self.make_model(), step=0, losses=self.losses, source=np.random.default_rng(4 + trainer))
        if self.make is not None:
            run.scheduler, run.optimizer = None, self.make(run)
            return run
        arguments = {name: made(value) for name, value in self.arguments.items()}
        run.scheduler = made(self.scheduler)
        if run.scheduler is not None:
            arguments["learning_rate"] = run.scheduler
        parameters = self.parameters(run.model)
        if self.groups is not None:
            cut = [parameters[:2], parameters[2:]]
            settings = [{name: made(value) for name, value in group.items()} for group in self.groups]
            parameters = [{"params": part, **group} for part, group in zip(cut, settings)]
        run.optimizer = getattr(paddle.optimizer, self.kind)(**arguments, parameters=parameters)
        return run


def weights(run):
    return np.concatenate([parameter.numpy().ravel() for parameter in run.model.parameters()])


def draw(run):
    run.x = paddle.to_tensor(run.source.normal(size=(16, 5)).astype(F))


def train(program, run):
    program.prepare(run)
    for run.step in range(STEPS):
        draw(run)
        program.backward(run)
        program.update(run)
        if program.clear:
            run.optimizer.clear_grad()
        program.after_step(run)
    return weights(run)


def plain(program):
    return train(program, program.make_run())


def distributed(program, session=None, run=None):
    run = run or program.make_run()
    run.optimizer = DistributedOptimizer(run.optimizer, session or ps.connect(stall=0), **program.options)
    return train(program, run)


def averaged(program, each=None):
    """Two trainers in one process: their gradients are averaged in order, then Paddle's own optimizer updates.

    `each` clips the gradients of each trainer first.
    """
    run = program.make_run()
    sources = [np.random.default_rng(4 + trainer) for trainer in range(2)]
    program.prepare(run)
    for run.step in range(STEPS):
        found = []
        for run.trainer, run.source in enumerate(sources):
            draw(run)
            run.optimizer.clear_grad(set_to_zero=False)
            program.backward(run)
            pairs = [(p, p.grad) for p in run.model.parameters() if p.grad is not None]
            found.append({p.name: g.numpy() for p, g in (pairs if each is None else each(pairs))})
        for parameter in run.model.parameters():
            parts = [gradients[parameter.name] for gradients in found if parameter.name in gradients]
            if parts:
                parameter.grad = paddle.to_tensor(sum(parts[1:], parts[0]) / F(2))
        program.update(run)
        run.optimizer.clear_grad(set_to_zero=False)
        program.after_step(run)
    return weights(run)


def together(program, team):
    """The same with two trainers in threads; models are made before, because Paddle numbers names in the whole process."""
    runs = [program.make_run(trainer) for trainer in range(2)]
    for trainer, run in enumerate(runs):
        run.trainer = trainer
    lock = threading.Lock()

    def slow(run):
        with lock:
            program.backward(run)

    results = team.each(lambda session: distributed(program.but(backward=slow), session, runs[session.trainer]))
    assert results[0].tobytes() == results[1].tobytes()
    return results[0]
