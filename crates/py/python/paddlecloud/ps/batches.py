"""The loop over a loader's batches that survives restarts: docs/design/0027-trainer-state.md.

The state of a trainer travels with the end of its step, which the body of the loop ends. A trainer that resumes at a step
repeats the last batches of the step before it, without effect, up to where the body ended that step. There it gets the state
of that moment, and the rest of the body runs as it would have.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddlecloud import _native
from paddlecloud.ps import keeping
from paddlecloud.ps.forgotten import Forgotten
from paddlecloud.ps.loops import OF_BATCHES, Loop, say

if TYPE_CHECKING:
    from paddlecloud.ps.session import Session

_END = object()


@dataclass
class _Window:
    """The batches of one step: from the first one that the body got after it had ended the step before."""

    first: tuple[int, int]
    # The random generators before the first batch.
    before: list[bytes]
    fingerprint: int
    # How often the body has ended a step in it.
    ends: int = 0


@dataclass
class _Moment:
    """A trainer when a step ends."""

    window: _Window
    last: tuple[int, int]
    # Of each epoch of the window: the random generators when it began.
    starts: dict[int, list[bytes]]
    generators: list[bytes]
    objects: list[bytes]
    names: list[str]

    def encode(self) -> bytes:
        window = self.window
        place = (window.first, window.before, window.fingerprint, window.ends, self.last, self.starts)
        return OF_BATCHES + pickle.dumps((*place, self.generators, self.objects, self.names), protocol=5)

    @classmethod
    def decode(cls, kept: bytes) -> _Moment:
        first, before, fingerprint, ends, *others = keeping.unpack(kept)
        return cls(_Window(first, before, fingerprint, ends), *others)


class Batches(Loop):
    """The loop of `Session.batches`. `epoch` and `index` are those of the current batch; both count from 0."""

    def __init__(self, session: Session, loader: Any, epochs: int, keep: Iterable[Any]) -> None:
        super().__init__(session)
        _refuse_what_ends(loader)
        kept = list(keep)
        self._loader = loader
        self._epochs = epochs
        self._generators = keeping.generators(loader, kept)
        self._objects = keeping.objects(kept, session.optimizers)
        self._names = [*self._generators.names, *self._objects.names]
        self._iterator: Iterator[Any] | None = None
        self._window: _Window | None = None
        self._replay: _Moment | None = None
        # Of each epoch that may be repeated: the random generators when it began.
        self._starts: dict[int, list[bytes]] = {}
        self._next_epoch = 0
        self._ends_to_replay = 0
        self._has_ended_steps = False
        self._keeps = kept
        self._forgotten: Forgotten | None = None
        self.epoch = 0
        self.index = -1

    def __iter__(self) -> Iterator[Any]:
        session = self._session
        with session.looping(self):
            self._forgotten = Forgotten(self._keeps, session.optimizers)
            initial = (self._generators.read(), self._objects.read())
            epoch: int | None = None
            while True:
                while session.epoch != epoch:
                    epoch = session.epoch
                    self._go_back(*initial)
                batch = self._next()
                if batch is _END:
                    self._end_replay("there are no more batches")
                    if self._all_ended():
                        return
                    continue
                session.begin_turn()
                yield batch
                if self._replay is not None and session.epoch == epoch and self._is_at(self._replay.last):
                    self._end_replay("its body did not end the step again")

    def state(self) -> bytes:
        window = self._window
        assert window is not None, "a step ends in the body, which has a batch"
        window.ends += 1
        self._has_ended_steps = True
        self._name_forgotten()
        self._starts = {epoch: start for epoch, start in self._starts.items() if epoch >= window.first[0]}
        now = (self._generators.read(), self._objects.read())
        return _Moment(window, (self.epoch, self.index), self._starts, *now, self._names).encode()

    def _name_forgotten(self) -> None:
        forgotten, self._forgotten = self._forgotten, None
        names = forgotten.names() if forgotten is not None else []
        if names:
            say(
                f"`batches` does not keep {' and '.join(names)}: a restarted trainer begins with what they are at its start; "
                "add them to `keep`"
            )

    def is_replaying(self) -> bool:
        return self._replay is not None

    def replayed(self) -> None:
        self._has_ended_steps = True
        self._ends_to_replay -= 1
        if self._ends_to_replay == 0:
            self._end_replay()

    def _all_ended(self) -> bool:
        if self._session.has_pushed:
            if not self._has_ended_steps:
                raise _native.PsError(
                    "no step was ended in `batches`: call `optimizer.step()`, `push_pull` or `end_step` in its body"
                )
            say(f"trainer {self._session.trainer} did not end a step after its last gradients: they have no effect")
        return self._session.ended()

    def _is_at(self, position: tuple[int, int]) -> bool:
        return (self.epoch, self.index) == position

    def _next(self) -> Any:
        """The next batch; `_END` after the last one of the last epoch."""
        if self._window is not None and self._window.ends > 0:
            self._window = None
        while True:
            if self._iterator is None and not self._open_next():
                return _END
            before = self._generators.read() if self._window is None else []
            batch = self._take()
            if batch is _END:
                continue
            if self._window is None:
                self._window = _Window((self.epoch, self.index), before, keeping.fingerprint(batch))
                self._compare(self._window)
            return batch

    def _take(self) -> Any:
        """The next batch of this epoch; `_END` after its last one."""
        assert self._iterator is not None, "an epoch is open"
        batch = next(self._iterator, _END)
        if batch is _END:
            self._iterator = None
        else:
            self.index += 1
        return batch

    def _open_next(self) -> bool:
        if self._next_epoch >= self._epochs:
            return False
        self._open(self._next_epoch)
        return True

    def _open(self, epoch: int) -> None:
        """Begins an epoch; in a replay, with the random generators as they were."""
        parts = (getattr(self._loader, name, None) for name in ("sampler", "batch_sampler", "dataset"))
        for part in (self._loader, *parts):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        if epoch in self._starts:
            self._generators.write(self._starts[epoch])
        else:
            self._starts[epoch] = self._generators.read()
        self._iterator = iter(self._loader)
        self.epoch, self.index, self._next_epoch = epoch, -1, epoch + 1

    def _forget(self) -> None:
        self._iterator, self._window, self._replay = None, None, None
        self._starts = {}
        self._next_epoch = self._ends_to_replay = 0

    def _go_back(self, generators: list[bytes], objects: list[bytes]) -> None:
        """To where this trainer was at its step."""
        session = self._session
        self._forget()
        kept = self._kept(OF_BATCHES)
        if kept is not None:
            self._begin_replay(_Moment.decode(kept))
            return
        if session.step > 0:
            say(
                f"trainer {session.trainer} resumes at step {session.step}, but no state of that step was kept: "
                "its batches, random generators and schedulers begin at their start"
            )
        self._generators.write(generators)
        self._objects.write(objects)

    def _begin_replay(self, moment: _Moment) -> None:
        if moment.names != self._names:
            raise _native.PsError(
                f"the state of step {self._session.step} has {', '.join(moment.names)}; "
                f"this program keeps {', '.join(self._names)}"
            )
        epoch, index = moment.window.first
        self._starts = dict(moment.starts)
        self._open(epoch)
        while self.index < index - 1:
            self._skip(moment.window.first)
        if index > 0:  # A loader with a thread draws the order of its epoch about now.
            self._generators.write(moment.window.before)
        self._replay, self._ends_to_replay = moment, moment.window.ends

    def _skip(self, to: tuple[int, int]) -> None:
        if self._iterator is None and not self._open_next() or self._take() is _END and self.epoch >= to[0]:
            raise _native.PsError(
                f"the loader has no batch {to[1]} in epoch {to[0]}, which it had before step {self._session.step}"
            )

    def _compare(self, found: _Window) -> None:
        """Says if the loader gives another batch than the one that is to be repeated."""
        if self._replay is None or found.first != self._replay.window.first:
            return
        if found.fingerprint != self._replay.window.fingerprint:
            say(
                f"trainer {self._session.trainer} resumes at step {self._session.step}, but its loader gives another batch "
                f"{self.index} of epoch {self.epoch} than before: its order or samples depend on something that is not in "
                "`keep`. The result will not be that of an undisturbed run"
            )

    def _end_replay(self, unless: str = "") -> None:
        """This trainer is what it was when the step ended; the loop is at the last batch of that step."""
        replay = self._replay
        if replay is None:
            return
        about = f"trainer {self._session.trainer} resumes at step {self._session.step} after batch {replay.last[1]} of epoch {replay.last[0]}"
        say(
            f"{about}: {unless}. What it does after the end of a step was not done for that batch"
            if unless
            else f"{about}, computed once more without effect: its loss is not the first one, what is kept is"
        )
        while not self._is_at(replay.last):
            self._skip(replay.last)
        self._replay = None
        self._window = replay.window
        self._generators.write(replay.generators)
        self._objects.write(replay.objects)


def _refuse_what_ends(loader: Any) -> None:
    """An iterator can be gone through once; a restarted trainer begins its epoch again."""
    name = type(loader).__name__
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise TypeError(f"`batches` needs a loader that can be iterated, not {name}")
    if hasattr(loader, "__next__"):
        raise TypeError(f"`batches` needs a loader that can be iterated again and again, not {name}: give a list or a DataLoader")
