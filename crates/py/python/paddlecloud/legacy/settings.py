"""What `paddle.init` sets: options of this process, with those of the job from the environment."""

from __future__ import annotations

import os

from paddlecloud.legacy import graph, log

options: dict[str, object] = {}


def init(**given):
    """`paddle.init`: options of a program. Each `PADDLE_INIT_*` of the environment applies unless the program sets it."""
    try:
        set_options(**given)
    except (RuntimeError, ValueError) as error:
        raise type(error)(f"{graph.users_line()}: {error}") from None
    log.command_line(["", *(f"--{name}={value}" for name, value in options.items())])


def set_options(**given):
    for key, value in os.environ.items():
        if key.startswith("PADDLE_INIT_"):
            options[key[len("PADDLE_INIT_") :].lower()] = value
    options.update(given)
    if truth(options.get("use_gpu", False)):
        raise RuntimeError(
            "`use_gpu` is on, but programs from 2017 run on CPUs only; use `paddle.init(use_gpu=False)` or `paddle train --use_gpu=0`, and submit with `-gpu 0`"
        )
    if int(options.get("trainer_count") or 1) < 1:
        raise ValueError(f"`trainer_count` must be at least 1, not {options['trainer_count']}")


def truth(value) -> bool:
    """A flag as command lines and environments spell it."""
    return str(value).strip().lower() not in ("", "0", "false", "no", "none", "off")


def seed() -> int:
    """2017's default seed was 1; 0 means a different one each time."""
    wanted = int(options.get("seed", 1) or 0)
    return wanted or int.from_bytes(os.urandom(4), "little")


def is_remote() -> bool:
    """Whether this process is a trainer of a job with parameter servers."""
    return bool(os.environ.get("PADDLE_PSERVERS_IP_PORT_LIST") or os.environ.get("PADDLE_INIT_PSERVERS"))


def require_paddle():
    """PaddlePaddle itself, or what to do about its absence."""
    try:
        import paddle
    except ImportError:
        paddle = None
    if paddle is None or not hasattr(paddle, "to_tensor"):
        # `paddle train` has no line of a program.
        line = graph.users_line()
        raise RuntimeError(
            f"{'' if line == '?' else line + ': '}training and inference need PaddlePaddle, which is not installed: run `pip install paddlepaddle==3.3.1`"
        )
    return paddle
