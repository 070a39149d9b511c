import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy.typing as npt

__all__ = ["cloud_reader", "np_array", "recordio", "text_file"]

_Path = str | os.PathLike[str]

def np_array(x: npt.NDArray[Any]) -> Callable[[], Iterator[Any]]: ...
def text_file(path: _Path) -> Callable[[], Iterator[str]]: ...
def recordio(paths: _Path | Sequence[_Path], buf_size: int = 100) -> Callable[[], Iterator[Any]]: ...
def cloud_reader(
    paths: _Path | Sequence[_Path], etcd_endpoints: object = None, timeout_sec: float = 5, buf_size: int = 64
) -> Callable[[], Iterator[Any]]: ...
