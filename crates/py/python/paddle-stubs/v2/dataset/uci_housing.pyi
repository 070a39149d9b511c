import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

__all__ = ["convert", "fetch", "test", "train"]

URL: str
MD5: str
feature_names: list[str]

_Sample = tuple[npt.NDArray[Any], npt.NDArray[Any]]

def train() -> Callable[[], Iterator[_Sample]]: ...
def test() -> Callable[[], Iterator[_Sample]]: ...
def fetch() -> None: ...
def convert(path: str | os.PathLike[str]) -> None: ...
