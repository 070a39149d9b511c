"""A configuration of v1 that is started by `python trainer_config.py`."""

from __future__ import annotations

import sys

from paddlecloud.v1 import configuration


def train_if_main() -> None:
    """Trains and exits when the program that imports v1's names is itself the configuration.

    The configuration is read again from its start, as `paddle train --config` would.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if configuration.is_being_read() or path is None or not _imports_us(main):
        return
    from paddlecloud.v1 import train

    sys.exit(train.main([f"--config={path}", *sys.argv[1:]]))


def _imports_us(main) -> bool:
    """Whether the first frame outside the import system is the main program's own."""
    frame = sys._getframe(2)
    while frame is not None and (
        frame.f_globals.get("__name__", "").startswith(("_frozen_importlib", "importlib", "paddle.", "paddlecloud."))
    ):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_globals is main.__dict__
