"""The log of 2017's programs, on standard error: lines of its C++ part (glog) and of its Python part."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import sys
import threading

FORMAT = "[%(levelname)s %(asctime)s %(filename)s:%(lineno)s] %(message)s"


def line(place: str, text: str) -> None:
    """A line as glog wrote it: `I0524 12:00:39.330195    43 Trainer.cpp:165] …`."""
    now = datetime.datetime.now()
    _write(f"I{now:%m%d %H:%M:%S.%f} {threading.get_native_id():5} {place}] {text}")


def say(place: str, text: str, level: str = "INFO") -> None:
    """A line as the Python part wrote it: `[INFO 2017-05-24 12:00:39,316 networks.py:1482] …`."""
    now = datetime.datetime.now()
    _write(f"[{level} {now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} {place}] {text}")


def _write(text):
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def command_line(words) -> None:
    """What the process was started with, and the two lines of its start."""
    line("Util.cpp:166", f"commandline: {' '.join(words)}")
    line("Util.cpp:130", "Calling runInitFunctions")
    line("Util.cpp:143", "Call runInitFunctions done.")


def orders(inputs, outputs) -> None:
    """The names of a network's data layers and outputs."""
    say("networks.py:1482", f"The input order is [{', '.join(node.name for node in inputs)}]")
    say("networks.py:1488", f"The output order is [{', '.join(node.name for node in outputs)}]")


@contextlib.contextmanager
def making_parameters():
    line("GradientMachine.cpp:86", "Initing parameters..")
    yield
    line("GradientMachine.cpp:93", "Init parameters done.")


def servers(environment=os.environ, *, is_sparse: bool) -> None:
    """Every port of the parameter servers that this trainer uses: the dense ones, and the sparse ones where they are needed."""
    hosts = environment.get("PADDLE_INIT_PSERVERS", "")
    addresses = [host.strip() for host in hosts.split(",") if host.strip()]
    if not addresses:  # outside a job only the list with ports may be there
        addresses = [each.strip().rpartition(":")[0] for each in environment.get("PADDLE_PSERVERS_IP_PORT_LIST", "").split(",")]
    first = int(environment.get("PADDLE_INIT_PORT") or 7164)
    dense = int(environment.get("PADDLE_INIT_PORTS_NUM") or 1)
    _ports(addresses, first, dense)
    if is_sparse:
        _ports(addresses, first + dense, int(environment.get("PADDLE_INIT_PORTS_NUM_FOR_SPARSE") or 1))


def _ports(addresses, first, count):
    every = [f"{address}:{first + number}" for address in addresses if address for number in range(count)]
    for number, address in enumerate(every):
        line("ParameterClient2.cpp:114", f"pserver {number} {address}")


def logger() -> logging.Logger:
    """What data providers log with."""
    found = logging.getLogger("paddle.v1")
    if not found.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        found.addHandler(handler)
        found.setLevel(logging.INFO)
        found.propagate = False
    return found
