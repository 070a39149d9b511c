"""What a trainer knows of its job, and the watchdog that shows where it is stuck."""

from __future__ import annotations

import contextlib
import faulthandler
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

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
            return cls([_native.ps_serve(1, secret)], 0, 1, 1, secret)
        return cls(
            addresses,
            int(env.get("PADDLE_INIT_TRAINER_ID") or env.get("PADDLE_TRAINER_ID") or 0),
            int(env.get("PADDLE_INIT_NUM_GRADIENT_SERVERS") or env.get("PADDLE_TRAINERS_NUM") or 1),
            attempt_number(env.get("PADDLECLOUD_ATTEMPT", "")),
            env.get("PADDLE_PS_SECRET") or None,
        )


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
