"""Small training programs of PyTorch that run twice: as they are, and with parameter servers.

The plain run with several trainers is one process: it computes the gradients of each trainer in order, averages them and calls
PyTorch's own optimizer.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from test_ps_team import Team

from paddlecloud.ps.torch import DistributedOptimizer

STEPS = 20
BATCH = 8


@functools.cache
def _network() -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))


def network() -> Any:
    """Two layers; the inputs of `batch` fit. Seeds are global, so threads only copy it."""
    return copy.deepcopy(_network())


def batch(trainer: int, number: int) -> Any:
    source = np.random.default_rng((trainer, number))
    return torch.from_numpy(source.normal(size=(BATCH, 5), scale=0.5).astype(np.float32))


def squared_error(model: Any, x: Any) -> Any:
    return ((model(x) - x.sum(dim=1, keepdim=True)) ** 2).mean()


def nothing(*_: Any) -> None:
    pass


def step(run: Run) -> None:
    run.optimizer.step()


def clear(run: Run) -> None:
    run.optimizer.zero_grad()


@dataclass(frozen=True)
class Program:
    """What a program does, in the order it does it. Everything gets the `Run`."""

    optimizer: Callable[..., Any]
    model: Callable[[], Any] = network
    loss: Callable[..., Any] = squared_error
    # Makes a scheduler; `schedule` is called after each step.
    scheduler: Callable[[Any], Any] | None = None
    schedule: Callable[[Run], None] = lambda run: run.scheduler.step()
    scheduler_first: bool = False
    # After the wrap, at the start of a step, and after backward.
    begin: Callable[[Run], None] = nothing
    before: Callable[[Run], None] = nothing
    clip: Callable[[Run], None] = nothing
    step: Callable[[Run], None] = step
    clear: Callable[[Run], None] = clear
    end: Callable[[Run], None] = nothing
    batches_per_step: int = 1
    passes_model: bool = False

    def but(self, **changes: Any) -> Program:
        return replace(self, **changes)


class Run:
    """One process of a program."""

    def __init__(self, program: Program, model: Any, trainer: int, wrap: Callable[..., Any]) -> None:
        self.program, self.model, self.trainer, self.number = program, model, trainer, 0
        self.optimizer = program.optimizer(self.parameters())
        self.scheduler = None
        if program.scheduler_first:
            self._make_scheduler()
        self.optimizer = wrap(self)
        if not program.scheduler_first:
            self._make_scheduler()
        self.kept: Any = None
        program.begin(self)

    def _make_scheduler(self) -> None:
        if self.program.scheduler is not None:
            self.scheduler = self.program.scheduler(self.optimizer)

    def parameters(self) -> list[Any]:
        return list(self.model.parameters())

    def backward(self, trainer: int) -> Any:
        """The gradients of one trainer, with the program's own clipping."""
        total = None
        for at in range(self.program.batches_per_step):
            x = batch(trainer, self.number * self.program.batches_per_step + at)
            loss = self.program.loss(self.model, x) / self.program.batches_per_step
            if loss.requires_grad:
                loss.backward()
            total = loss if total is None else total + loss
        self.program.clip(self)
        return total

    def finish(self) -> None:
        self.program.step(self)
        self.program.clear(self)
        if self.scheduler is not None:
            self.program.schedule(self)
        self.number += 1

    def result(self) -> np.ndarray[Any, Any]:
        self.program.end(self)
        return np.concatenate([tensor.detach().numpy().ravel() for tensor in self.model.parameters()])


def plain(program: Program, trainers: int = 1) -> np.ndarray[Any, Any]:
    """One process for all trainers, with PyTorch alone."""
    run = Run(program, program.model(), 0, lambda run: run.optimizer)
    for _ in range(STEPS):
        program.before(run)
        if trainers == 1:
            run.backward(0)
        else:
            _average(run, trainers)
        run.finish()
    return run.result()


def _average(run: Run, trainers: int) -> None:
    """The mean of the trainers' gradients; the one that was there before the step belongs to each of them."""
    before = [copy.deepcopy(tensor.grad) for tensor in run.parameters()]
    sums: list[Any] = [None] * len(before)
    for trainer in range(trainers):
        for tensor, gradient in zip(run.parameters(), before):
            tensor.grad = copy.deepcopy(gradient)
        run.backward(trainer)
        for at, tensor in enumerate(run.parameters()):
            if tensor.grad is not None:
                sums[at] = tensor.grad if sums[at] is None else sums[at] + tensor.grad
    for tensor, total in zip(run.parameters(), sums):
        tensor.grad = None if total is None else total / trainers


def distributed(program: Program, trainers: int = 1, servers: int = 1) -> list[np.ndarray[Any, Any]]:
    """The results of all trainers, each a thread with a session."""
    # Seeds are global, so one thread makes all models.
    model = program.model()
    models = [copy.deepcopy(model) for _ in range(trainers)]

    def work(session: Any) -> Any:
        def wrap(run: Run) -> Any:
            return DistributedOptimizer(run.optimizer, session, model=run.model if program.passes_model else None)

        run = Run(program, models[session.trainer], session.trainer, wrap)
        for _ in range(STEPS):
            program.before(run)
            run.backward(session.trainer)
            run.finish()
        result = run.result()
        session.close()
        return result

    return Team(trainers, servers).each(work)
