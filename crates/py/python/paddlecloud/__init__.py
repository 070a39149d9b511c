"""PaddleCloud for training programs.

`import recordio` reads and writes RecordIO files, `paddlecloud.data` feeds them to a training loop, and
`paddlecloud.Client` talks to a server. Importing this package alone loads none of them.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # As in `typing`, which every start of Python would have to load.
if TYPE_CHECKING:
    from paddlecloud._native import __version__ as __version__
    from paddlecloud.aio import AsyncClient as AsyncClient
    from paddlecloud.client import Client as Client
    from paddlecloud.data import RecordDataset as RecordDataset

_PLACES = {
    "AsyncClient": "paddlecloud.aio",
    "Client": "paddlecloud.client",
    "RecordDataset": "paddlecloud.data",
    "__version__": "paddlecloud._native",
}

__all__ = ["AsyncClient", "Client", "RecordDataset", "__version__"]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'paddlecloud' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_PLACES))
