"""What a trainer knows of its job, and the watchdog that shows where it is stuck."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from paddlecloud import _native


@dataclass(frozen=True)
class Job:
    addresses: list[str]
    trainer: int
    trainers: int
    attempt: int
    secret: str | None
    # Names the folder of this run's checkpoints.
    run: str = ""
    # The run that this one continues, and where its `output` is if that is another one.
    resume: str = ""
    resume_output: str = ""
    # Its parameter server is in this process.
    is_alone: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Job:
        addresses = [word.strip() for word in env.get("PADDLE_PSERVERS_IP_PORT_LIST", "").split(",") if word.strip()]
        if not addresses and env.get("PADDLE_INIT_PSERVERS"):
            port = env.get("PADDLE_INIT_PORT") or "7164"
            addresses = [f"{host.strip()}:{port}" for host in env["PADDLE_INIT_PSERVERS"].split(",")]
        if not addresses:
            if env.get("TRAINING_ROLE"):
                raise _native.PsError("this job has no parameter servers; submit it with `-pservers 1` or more")
            secret = secrets.token_hex(32)
            fresh = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
            return cls([_native.ps_serve(1, secret)], 0, 1, 1, secret, fresh, is_alone=True)
        marker = env.get("PADDLECLOUD_ATTEMPT", "")
        return cls(
            addresses,
            int(env.get("PADDLE_INIT_TRAINER_ID") or env.get("PADDLE_TRAINER_ID") or 0),
            int(env.get("PADDLE_INIT_NUM_GRADIENT_SERVERS") or env.get("PADDLE_TRAINERS_NUM") or 1),
            attempt_number(marker),
            env.get("PADDLE_PS_SECRET") or None,
            # A job that another system runs has only its name.
            marker.partition(".")[0] or env.get("PADDLE_JOB_NAME") or "run",
            env.get("PADDLE_PS_RESUME", ""),
            env.get("PADDLE_PS_RESUME_OUTPUT", ""),
        )

    def resuming(self, run: str | None) -> Job:
        """This job as the program wants it: it may name the run to continue itself."""
        if not run:
            return self
        if os.path.basename(run) != run or run in (".", ".."):
            raise ValueError(f"`resume` is the name of a run, a folder in `checkpoints`, not {run!r}")
        if self.resume and self.resume != run:
            raise ValueError(f"the program resumes {run!r}, but the job was submitted with `-resume` of {self.resume!r}")
        return self if self.resume else replace(self, resume=run)

    def folders(self, checkpoints: str | os.PathLike[str]) -> tuple[str, str]:
        """The checkpoints of this run, and those of the run that it continues, if any.

        A folder inside this run's `output` is in that run's `output` there; others are shared by all runs.
        """
        base = os.path.abspath(checkpoints)
        own = os.path.join(base, self.run)
        if not self.resume:
            return own, ""
        output = os.path.abspath("output")
        if self.resume_output and os.path.commonpath([base, output]) == output:
            base = os.path.join(self.resume_output, os.path.relpath(base, output))
        return own, os.path.join(os.path.normpath(base), self.resume)


def attempt_number(marker: str) -> int:
    """`<run>.trainer-0.2` is the second attempt."""
    number = marker.rpartition(".")[2]
    return int(number) if number.isdigit() else 1


class Watchdog:
    """Logs this trainer's Python stack when it makes no call for too long; the others wait for it then."""

    def __init__(self, stall: float) -> None:
        self._stall = stall
        self._armed = 0.0
        self.alive()

    def alive(self) -> None:
        now = time.monotonic()
        # Arming starts a thread: not at every call.
        if self._stall > 0 and now - self._armed > self._stall / 4:
            self._armed = now
            with contextlib.suppress(ValueError, OSError, AttributeError):  # stderr is not a file
                faulthandler.dump_traceback_later(self._stall, repeat=True, file=sys.stderr)

    def on_wait(self, server: int, message: str) -> None:
        self.alive()
        print(f"paddlecloud.ps: parameter server {server}: {message}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        if self._stall > 0:
            faulthandler.cancel_dump_traceback_later()
