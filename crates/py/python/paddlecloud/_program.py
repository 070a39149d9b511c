"""The native program that the wheel installs as `paddlectl`: where it is, and its other names.

The program chooses what to do by the name it is called by, so the other names only start it under that name.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import NoReturn

_FILE = "paddlectl" + (sysconfig.get_config_var("EXE") or "")


def find() -> str | None:
    """The program of this wheel; `None` where the wheel was built without it."""
    for folder in _folders():
        path = os.path.join(folder, _FILE)
        if os.access(path, os.X_OK):
            return path
    return None


def _folders() -> list[str]:
    """Where an installer puts a wheel's programs: beside Python, in the user's own folder, or with `--target`."""
    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    user = sysconfig.get_preferred_scheme("user")
    return [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", user), os.path.join(site, "bin")]


def paddlecloud() -> NoReturn:
    """The program `paddlecloud`."""
    _become("paddlecloud")


def paddlecloud_server() -> NoReturn:
    """The program `paddlecloud-server`."""
    _become("paddlecloud-server")


def _become(name: str) -> NoReturn:
    path = find()
    if path is None:
        print(f"error: cannot start `{name}`: this wheel was built without the native program", file=sys.stderr)
        print("hint: run `cargo xtask wheel` to build one with it", file=sys.stderr)
        sys.exit(1)
    os.execv(path, [name, *sys.argv[1:]])
