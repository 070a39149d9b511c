"""Detects another package that installs a module `recordio` too.

Whichever of the two was installed last has overwritten the other's files, so neither can be trusted. It
looks at names of folders only: this runs whenever `recordio` is imported.
"""

from __future__ import annotations

import os
import sys
import warnings

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def warn_about_foreign_recordio() -> None:
    foreign = find_foreign_recordio()
    if foreign is not None:
        warnings.warn(
            f"{foreign} is another package with a module `recordio` that conflicts with paddlecloud's: "
            "run `pip uninstall recordio`, then `pip install --force-reinstall --no-deps paddlecloud`",
            RuntimeWarning,
            stacklevel=3,
        )


def find_foreign_recordio() -> str | None:
    """The name of the other package, and its folder."""
    loaded = sys.modules.get("recordio")
    origin = getattr(loaded, "__file__", None) or ""
    if loaded is not None and os.path.dirname(os.path.dirname(os.path.abspath(origin))) != _HERE:
        return f"`{origin or repr(loaded)}`"
    for folder in _package_folders():
        for name in _entries(folder):
            kind = name.lower()
            if kind.startswith(("recordio-", "recordio.")) and kind.endswith((".dist-info", ".egg-info", ".egg")):
                return f"`{os.path.join(folder, name)}`"
    return None


def _package_folders() -> list[str]:
    return [_HERE] + [folder for folder in sys.path if folder.endswith("-packages") and folder != _HERE]


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
