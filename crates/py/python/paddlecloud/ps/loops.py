"""The loops over training steps; `batches` has a file of its own. What they promise after a restart is in docs/design/0027-trainer-state.md.

A loop gives the bytes that travel with the end of each step, and gets those of the step at which this trainer resumes: after
its own restart, after a rollback, and in a run that resumes another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from paddlecloud import _native

if TYPE_CHECKING:
    from paddlecloud.ps.session import Session

OF_STEPS = b"steps 1\n"
OF_BATCHES = b"batches 1\n"


def say(message: str) -> None:
    print(f"paddlecloud.ps: {message}", file=sys.stderr, flush=True)


class Loop:
    """What a session asks of the loop it is in."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def state(self) -> bytes:
        """The bytes that travel with the end of this step."""
        raise NotImplementedError

    def is_replaying(self) -> bool:
        """Whether the body repeats a step that has ended: nothing it does counts."""
        return False

    def replayed(self) -> None:
        """The body has ended the step it repeats."""

    def _kept(self, form: bytes) -> bytes | None:
        """The bytes of this trainer's step, without their form; `None` if there are none."""
        kept = self._session.go_back()
        if kept and not kept.startswith(form):
            other = "`batches`" if form == OF_STEPS else "`steps`"
            raise _native.PsError(f"the state of step {self._session.step} is that of a program with {other}")
        return kept[len(form) :] if kept else None


class Steps(Loop):
    """The loop of `Session.steps`."""

    def __init__(
        self,
        session: Session,
        total: int | None,
        state: Callable[[], bytes] | None,
        restore: Callable[[bytes], None] | None,
    ) -> None:
        super().__init__(session)
        if (state is None) != (restore is None):
            raise ValueError("`steps` needs both `state` and `restore`, or neither")
        self._total = total
        self._state = state
        self._restore = restore
        self._initial = b""

    def __iter__(self) -> Iterator[int]:
        session = self._session
        with session.looping(self):
            self._initial = self._state() if self._state is not None else b""
            epoch = session.epoch
            if session.step > 0:
                self._go_back()
            while True:
                if session.epoch != epoch:
                    epoch = session.epoch
                    self._go_back()
                elif self._total is not None and session.step >= self._total:
                    if session.ended():
                        return
                else:
                    at = session.step
                    session.begin_turn()
                    yield at
                    if session.step == at and session.epoch == epoch:
                        session.end_step()

    def state(self) -> bytes:
        return b"" if self._state is None else OF_STEPS + self._state()

    def _go_back(self) -> None:
        kept = self._kept(OF_STEPS) if self._restore is not None else None
        step = self._session.step
        if self._restore is None:
            say(
                f"trainer {self._session.trainer} resumes at step {step}. Its random generators and schedulers do not: "
                "give `steps` a `state` and a `restore`, or use `batches`"
            )
        elif kept is not None:
            self._restore(kept)
        elif step == 0:
            self._restore(self._initial)
        else:
            say(f"trainer {self._session.trainer} resumes at step {step}, but no state of that step was kept")
