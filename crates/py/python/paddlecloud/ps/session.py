"""A trainer's connection to the parameter servers of its job."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from paddlecloud import _native
from paddlecloud.ps import arrays
from paddlecloud.ps.arrays import Floats
from paddlecloud.ps.batches import Batches
from paddlecloud.ps.initial import Normal, Uniform, Zero
from paddlecloud.ps.job import Job, Watchdog
from paddlecloud.ps.loops import Loop, Steps, say
from paddlecloud.ps.optimizers import SGD, Optimizer, OptimizerState

T = TypeVar("T")


def connect(
    *,
    mode: str = "sync",
    reduce: str = "mean",
    staleness: int = 0,
    checkpoint_every: int = 0,
    checkpoints: str | os.PathLike[str] = "output/checkpoints",
    gradients: str = "fp32",
    keep: float = 0.01,
    patience: float = 300.0,
    stall: float = 120.0,
    resume: str | None = None,
) -> Session:
    """Connects to the parameter servers of this job, or to one in this process outside a job.

    mode: "sync", "async" or "bounded" (a trainer is at most `staleness` steps ahead of the slowest).
    reduce: synchronous gradients are averaged ("mean") or added ("sum") over the trainers.
    checkpoint_every: steps between two checkpoints; 0: none. A restarted parameter server continues from the latest one.
    checkpoints: their folder, as the parameter servers see it: relative to the package. Each run has a folder of its own in it,
        named `run` of the session.
    gradients: their encoding: "fp32", "bf16", "fp16", or "topk": the share `keep` of the elements of a dense gradient, the largest
        ones; the others are added to the next gradient.
    patience: seconds a parameter server may be unreachable. One whose machine is lost is restarted after about two minutes.
    stall: seconds without a call after which the Python stack of this trainer is logged; 0: never.
    resume: the run to continue, as its folder in `checkpoints` is called. A job that was submitted with `-resume` needs none.
    """
    if mode not in ("sync", "async", "bounded"):
        raise ValueError(f"`mode` must be 'sync', 'async' or 'bounded', not {mode!r}")
    if reduce not in ("mean", "sum"):
        raise ValueError(f"`reduce` must be 'mean' or 'sum', not {reduce!r}")
    if gradients not in ("fp32", "bf16", "fp16", "topk"):
        raise ValueError(f"`gradients` must be 'fp32', 'bf16', 'fp16' or 'topk', not {gradients!r}")
    if not 0 < keep <= 1:
        raise ValueError(f"`keep` must be above 0 and at most 1, not {keep!r}")
    job = Job.from_environment(os.environ).resuming(resume)
    own, resumed = job.folders(checkpoints)
    is_saved = bool(checkpoint_every or resumed)
    watchdog = Watchdog(stall)
    native = _native.PsClient(
        job.addresses,
        job.trainer,
        job.trainers,
        job.attempt,
        job.secret,
        mode,
        staleness,
        reduce == "mean",
        own if is_saved else "",
        checkpoint_every,
        patience,
        watchdog.on_wait,
        gradients,
        keep,
        on_notice=say,
        resume=resumed,
    )
    if is_saved and job.is_alone:
        say(f"the checkpoints of this run are in {own}; `resume={job.run!r}` continues it")
    return Session(native, job, mode, watchdog)


class Session:
    """All parameter servers as one. Made by `connect`."""

    def __init__(self, native: Any, job: Job, mode: str, watchdog: Watchdog) -> None:
        self._native = native
        self._watchdog = watchdog
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._rows: dict[str, int] = {}
        self._slots: dict[str, tuple[str, ...]] = {}
        self._background: ThreadPoolExecutor | None = None
        self._left = False
        self._loop: Loop | None = None
        # The epoch in which the body of the loop began its turn; a rollback begins another one.
        self._turn: int | None = None
        # What the end of a step pulls: a rollback fetches it again.
        self._pulled: list[tuple[str, Floats]] = []
        self._has_said: set[str] = set()
        # Of a wrapped framework: their parameters are on the servers, and `fetch` gets them.
        self.optimizers: list[Any] = []
        self.has_pushed = False
        self.restarted = self.step > 0 or bool(job.resume)
        self._is_before_training = self.restarted
        # The other trainers have passed the barriers that the program of a later attempt comes to before it trains.
        self._is_behind = self.step > native.first_step and job.attempt > 1
        self.mode = mode
        self.run = job.run
        self.trainer = job.trainer
        self.trainers = job.trainers
        self.servers = len(job.addresses)
        atexit.register(self._at_exit)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        return f"<trainer {self.trainer} of {self.trainers}, {self.servers} parameter servers, {self.mode}>"

    @property
    def step(self) -> int:
        """The step this trainer works on; not 0 in a trainer that was restarted."""
        step: int = self._native.step
        return step

    def create(self, name: str, value: Any, optimizer: Optimizer | None = None) -> None:
        """Declares a dense tensor. Trainer 0's value is the initial one; all trainers must give the same shape."""
        value = arrays.floats(value, name)
        optimizer = optimizer or SGD(0.01)
        self._native.create_dense(name, value, optimizer.arguments())
        self._shapes[name] = value.shape
        self._slots[name] = optimizer.slots()

    def table(
        self,
        name: str,
        row: int,
        optimizer: Optimizer | None = None,
        *,
        init: Zero | Uniform | Normal | None = None,
        seed: int = 0,
        admit_after: int = 1,
        max_rows: int = 0,
        max_bytes: int = 0,
        evict: bool = False,
        idle_steps: int = 0,
    ) -> None:
        """Declares a sparse table: rows of `row` floats for any 64-bit id.

        A row is created at its first training lookup, or at its `admit_after`-th (in synchronous training: in the `admit_after`-th
        step that asks for it). Its initial values depend on seed, table and id alone. A table with `max_rows` or `max_bytes`
        refuses more, or drops the least recently used with `evict`; rows unseen for `idle_steps` steps are dropped.
        """
        if max_rows and max_bytes:
            raise ValueError("give `max_rows` or `max_bytes`, not both")
        init = Uniform() if init is None else init
        limits = {
            "admit_after": float(admit_after),
            "max_rows": float(max_rows),
            "max_bytes": float(max_bytes),
            "evict": float(evict),
            "idle_steps": float(idle_steps),
        }
        start = (type(init).__name__.lower(), {key: float(value) for key, value in vars(init).items()})
        optimizer = optimizer or SGD(0.01)
        self._native.create_table((name, row, optimizer.arguments(), start, seed, ("limits", limits)))
        self._rows[name] = row

    def push(
        self,
        gradients: Mapping[str, Any],
        *,
        lr: float | None = None,
        samples: int = 0,
        optimizer: Optimizer | None = None,
    ) -> None:
        """Adds gradients to this trainer's step; in asynchronous modes they change the model immediately.

        `lr` overrides the schedule. `samples` is the size of the batch, for schedules that count samples. `optimizer` has the rate
        and the constants of this update; it is of the same kind as the declared one and keeps the same state. In a synchronous
        step, all trainers that push a tensor give it the same rate and constants.
        """
        self._watchdog.alive()
        parts = [(name, arrays.floats(value, name)) for name, value in gradients.items()]
        if self._counts_for_nothing():
            return
        self._begin_training()
        self.has_pushed = True
        with self._unless_rolled_back():
            self._native.push(parts, (lr, samples), optimizer and optimizer.arguments())

    # A name is a sequence of names too; the first form that fits counts.
    @overload
    def pull(self, names: str, *, out: None = None, averaged: bool = False) -> Floats: ...  # type: ignore[overload-overlap]
    @overload
    def pull(self, names: str, *, out: T, averaged: bool = False) -> T: ...  # type: ignore[overload-overlap]
    @overload
    def pull(self, names: Sequence[str] | None = None, *, out: None = None, averaged: bool = False) -> dict[str, Floats]: ...
    @overload
    def pull(
        self, names: Sequence[str] | None = None, *, out: Mapping[str, T], averaged: bool = False
    ) -> dict[str, T | Floats]: ...
    def pull(self, names: str | Sequence[str] | None = None, *, out: Any = None, averaged: bool = False) -> Any:
        """The values of one tensor, or of several as a dictionary; of all without `names`.

        `out` is an array (or a dictionary of arrays) to pull into: float32, contiguous, of numpy, PyTorch or Paddle.
        """
        self._watchdog.alive()
        targets, result = self._targets(names, out)
        self._again_after_rollback(lambda: self._native.pull(targets, averaged))
        return result

    def push_pull(
        self, gradients: Mapping[str, Any], *, out: Any = None, lr: float | None = None, samples: int = 0
    ) -> Any:
        """Pushes, ends the step and pulls the same tensors as they are after it."""
        self.push(gradients, lr=lr, samples=samples)
        return self.end_step(list(gradients), out=out)

    def end_step(self, names: Sequence[str] = (), *, out: Any = None) -> Any:
        """Ends this trainer's step and pulls the named tensors after it. `steps` and `push_pull` do it themselves."""
        self._watchdog.alive()
        targets, result = self._targets(names, out)
        self._pulled = targets or self._pulled
        if not self._counts_for_nothing():
            self._begin_training()
            self.has_pushed = False
            with self._unless_rolled_back():
                state = self._loop.state() if self._loop is not None else b""
                self._native.finish_step(targets, state or None)
                return result
        elif not self._is_past() and self._loop is not None:
            self._loop.replayed()
            self._is_before_training = self._loop.is_replaying()
        # The step was not ended: it is of the past, or has ended before.
        self._again_after_rollback(lambda: self._native.pull(targets, False))
        return result

    def steps(
        self,
        total: int | None = None,
        *,
        state: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
    ) -> Iterator[int]:
        """Yields step numbers from this trainer's current step up to `total`; a step ends when the loop asks for the next one.

        After the last one this trainer leaves and waits for the others. When training is rolled back to a checkpoint, the loop
        resumes at the step of the checkpoint: what its body did since then is not counted. `state` gives bytes of this
        trainer that travel with the end of each step; `restore` gets those of the step at which this trainer resumes. `state`
        is also called before the first step, because training may be rolled back to the start.
        """
        return iter(Steps(self, total, state, restore))

    def batches(self, loader: Any, epochs: int = 1, keep: Iterable[Any] = ()) -> Batches:
        """Yields the batches of `loader` in every epoch; the body ends its steps: `optimizer.step()`, `push_pull` or `end_step`.

        loader: anything that can be iterated again and again: a DataLoader, a list, a RecordDataset.
        keep: what has a `state_dict` (of a model its buffers, not its parameters) and random generators of the program's own.

        A trainer that was restarted or rolled back, and one of a run that resumes another, continues at its batch with the
        random generators of Python, numpy and the framework and the states of `keep` as they were. For that, the loop gives
        it the batches of its last step once more; until the body ends that step again, nothing it does counts. After the last
        batch this trainer leaves and waits for the others.
        """
        if self._left:
            raise _native.PsError("this trainer has left: give `batches` all epochs at once")
        return Batches(self, loader, epochs, keep)

    @property
    def epoch(self) -> int:
        """How often training was rolled back."""
        epoch: int = self._native.epoch
        return epoch

    @contextlib.contextmanager
    def looping(self, loop: Loop) -> Iterator[None]:
        """While `loop` is gone through, it answers rollbacks."""
        self._loop = loop
        try:
            yield
        finally:
            self._loop = None
            self._turn = None

    def begin_turn(self) -> None:
        """The loop gives its body something to do, in the current epoch."""
        self._turn = self._native.epoch
        if not self.is_replaying():
            self._is_before_training = False

    def go_back(self) -> bytes:
        """After a rollback or a restart: fetches the values again, and returns the bytes that this trainer kept for its step."""
        self.has_pushed = False
        if self._pulled:
            with contextlib.suppress(ValueError):  # A tensor that did not exist then: the program will create it again.
                self._again_after_rollback(lambda: self._native.pull(self._pulled, False))
        if self._pulled or self.restarted:
            for optimizer in self.optimizers:
                optimizer.fetch()
        kept: bytes = self._again_after_rollback(self._native.kept)
        return kept

    def ended(self) -> bool:
        """Leaves and waits for the others; false if all have to go back to a checkpoint."""
        try:
            self.leave()
            self._native.wait_for_end()
        except _native.PsRolledBack:
            self._left = False
            return False
        return True

    def is_replaying(self) -> bool:
        """Whether the body of the loop repeats a step that has ended."""
        return self._loop is not None and self._loop.is_replaying()

    def _counts_for_nothing(self) -> bool:
        """Whether the body repeats a step that has ended, or training was rolled back since its turn began."""
        return self.is_replaying() or self._is_past()

    def _is_trained(self, call: str) -> bool:
        """Whether `call` must change nothing, because training has changed the model already. Says so once."""
        if self._is_before_training and call not in self._has_said:
            self._has_said.add(call)
            say(f"trainer {self.trainer} resumes at step {self.step}: `{call}` changes nothing, the model stays as it was trained")
        return self._is_before_training or self._counts_for_nothing()

    def _begin_training(self) -> None:
        """A restarted trainer trains: with a loop of its own, it does so from its first batch on."""
        if self._is_before_training and self._loop is None:
            self._is_before_training = False
            say(
                f"trainer {self.trainer} resumes at step {self.step}. Its own loop, random generators and schedulers do not: "
                "use `batches`, or `steps` with `state` and `restore`"
            )

    def say_frozen(self, names: Sequence[str]) -> None:
        """Names parameters that have been trained and are frozen in the program of this restarted trainer."""
        if names:
            found = ", ".join(f"`{name}`" for name in names)
            say(
                f"trainer {self.trainer} resumes at step {self.step}: {found} have been trained, but are frozen in its program. "
                "Unfreeze by the position (`loop.epoch` or `session.step`), or train in `batches`, which keeps it"
            )

    def _is_past(self) -> bool:
        """Whether training was rolled back since the body of the loop began its turn: the rest of it counts for nothing."""
        return self._turn is not None and self._turn != self._native.epoch

    @contextlib.contextmanager
    def _unless_rolled_back(self) -> Iterator[None]:
        """In a loop, what belongs to a step that no longer exists is dropped; elsewhere the program must know."""
        try:
            yield
        except _native.PsRolledBack:
            if self._loop is None:
                raise

    def _again_after_rollback(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except _native.PsRolledBack:
                if self._loop is None:
                    raise

    def lookup(self, table: str, ids: Any, *, train: bool = True, out: Any = None) -> Floats:
        """The rows of `ids`, shaped like `ids` with one more dimension. `train=False` creates no rows."""
        self._watchdog.alive()
        shape = (*np.shape(ids), self._row(table))
        if out is None:
            found = np.empty(shape, np.float32)
        else:
            found = arrays.writable(out, table)
        wanted = arrays.ids(ids)
        self._again_after_rollback(
            lambda: self._native.lookup(table, wanted, train and not self._counts_for_nothing(), found)
        )
        return found.reshape(shape)

    def push_rows(
        self,
        table: str,
        ids: Any,
        gradients: Any,
        *,
        lr: float | None = None,
        samples: int = 0,
        optimizer: Optimizer | None = None,
    ) -> None:
        """Adds the gradients of rows to this trainer's step; those of repeated ids are summed. The rest as in `push`."""
        self._watchdog.alive()
        self._row(table)
        if self._counts_for_nothing():
            return
        self._begin_training()
        self.has_pushed = True
        with self._unless_rolled_back():
            values = arrays.floats(gradients, table)
            self._native.push_rows(table, arrays.ids(ids), values, (lr, samples), optimizer and optimizer.arguments())

    def prefetch(self, table: str, ids: Any) -> Future[Floats]:
        """Looks rows up in the background."""
        return self._in_background(self.lookup, table, ids)

    def push_later(
        self, gradients: Mapping[str, Any], *, lr: float | None = None, samples: int = 0
    ) -> Future[None]:
        """Pushes in the background; the arrays must not change before the future is done."""
        return self._in_background(self.push, gradients, lr=lr, samples=samples)

    def pull_later(self, names: str | Sequence[str] | None = None, *, out: Any = None) -> Future[Any]:
        """Pulls in the background."""
        return self._in_background(self.pull, names, out=out)

    def barrier(self) -> None:
        """Waits for all trainers that have not left. One that was restarted passes those before its first step."""
        if not (self._is_before_training and self._is_behind):
            self._native.barrier()

    def refuse_other_values(self, values: Mapping[str, Floats]) -> None:
        """Before the first gradients: they belong to this trainer's `values`, which must be those of trainer 0."""
        if self.mode != "sync" or self.trainers == 1 or self._counts_for_nothing():
            return
        with self._unless_rolled_back():
            # Trainer 0 has sent what its program set.
            self._native.barrier()
            if self.trainer == 0:
                return
            targets, found = self._targets(list(values), None)
            self._native.pull(targets, False)
            other = [name for name, value in values.items() if found[name].tobytes() != value.tobytes()]
            if other:
                raise ValueError(
                    f"`{other[0]}` has other values in trainer {self.trainer} than in trainer 0: set it in all trainers, or in "
                    "trainer 0 before `DistributedOptimizer`, which gives its values to all"
                )

    def assign(self, name: str, value: Any) -> None:
        """Replaces a tensor's values and clears its optimizer state."""
        if self._is_trained("assign"):
            return
        self._native.assign(name, arrays.floats(value, name))

    def optimizer_state(self, names: str | Sequence[str] | None = None) -> dict[str, OptimizerState]:
        """What the optimizers keep for dense tensors, as it is at this trainer's step; of all without `names`."""
        names = [names] if isinstance(names, str) else names
        found = {}
        for name in self._shapes if names is None else names:
            shape = self._target(name, None).shape
            state = np.empty((len(self._slots[name]), *shape), np.float32)
            updates, samples, powers = self._again_after_rollback(lambda: self._native.optimizer_state(name, state))
            found[name] = OptimizerState(updates, samples, dict(zip(self._slots[name], state)), powers)
        return found

    def set_optimizer_state(self, name: str, state: OptimizerState) -> None:
        """Replaces what an optimizer keeps for a dense tensor. Trainer 0's counts; the others wait for it."""
        if self._is_trained("set_optimizer_state"):
            return
        shape = self._target(name, None).shape
        if set(state.slots) != set(self._slots[name]):
            raise ValueError(f"the state of `{name}` has {list(self._slots[name])}, not {list(state.slots)}")
        values = np.empty((len(self._slots[name]), *shape), np.float32)
        for at, slot in enumerate(self._slots[name]):
            given = arrays.view(state.slots[slot])
            if given.shape != shape:
                raise ValueError(f"`{slot}` of `{name}` has shape {list(shape)}, not {list(given.shape)}")
            values[at] = given
        if self.trainer == 0:
            self._native.set_optimizer_state(name, (state.updates, state.samples), state.powers, values)
        self.barrier()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model: one file per parameter, `done` last. For one trainer to call."""
        self._native.save(Path(folder))

    def save_pass(self, number: int, output: str | os.PathLike[str] = "output") -> Path:
        """Writes the model to `output/pass-%05d`."""
        folder = Path(output) / f"pass-{number:05d}"
        self.save(folder)
        return folder

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Reads a saved model on trainer 0; the others wait for it."""
        if self._is_trained("load"):
            return
        if self.trainer == 0:
            self._native.load(Path(folder))
        self.barrier()

    def stat(self) -> list[dict[str, Any]]:
        """The state of each parameter server."""
        return [json.loads(text) for text in self._native.stat()]

    def names_on_servers(self) -> set[str]:
        """The tensors and tables that the servers have, whether or not this program has declared them."""
        return {tensor["name"] for tensor in self.stat()[0]["tensors"]}

    def leave(self) -> None:
        """Leaves the training; the other trainers no longer wait for this one."""
        if not self._left:
            self._native.leave()
            self._left = True

    def close(self) -> None:
        """Leaves and ends what runs in the background."""
        atexit.unregister(self._at_exit)
        if self._background is not None:
            self._background.shutdown()
        self.leave()
        self._watchdog.stop()

    def _targets(self, names: str | Sequence[str] | None, out: Any) -> tuple[list[tuple[str, Floats]], Any]:
        if isinstance(names, str):
            array = self._target(names, out)
            return [(names, array)], array if out is None else out
        names = list(self._shapes) if names is None else names
        given = out or {}
        found = {name: self._target(name, given.get(name)) for name in names}
        result = {name: array if given.get(name) is None else given[name] for name, array in found.items()}
        return list(found.items()), result

    def _target(self, name: str, out: Any) -> Floats:
        if out is not None:
            return arrays.writable(out, name)
        if name not in self._shapes:
            raise ValueError(f"there is no tensor `{name}`; create it first")
        return np.empty(self._shapes[name], np.float32)

    def _row(self, table: str) -> int:
        if table not in self._rows:
            raise ValueError(f"there is no table `{table}`; create it first with `table`")
        return self._rows[table]

    def _in_background(self, call: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._background is None:
            self._background = ThreadPoolExecutor(1, "paddlecloud-ps")
        return self._background.submit(call, *args, **kwargs)

    def _at_exit(self) -> None:
        # A program that failed does not leave: its next attempt resumes where this one was.
        if getattr(sys, "last_value", None) is None:
            with contextlib.suppress(_native.PsError, RuntimeError):
                self.leave()
