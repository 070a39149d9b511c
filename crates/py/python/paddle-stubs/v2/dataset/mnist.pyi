import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

__all__ = ["convert", "fetch", "test", "train"]

URL_PREFIX: str
TRAIN: tuple[tuple[str, str], tuple[str, str]]
TEST: tuple[tuple[str, str], tuple[str, str]]

def train() -> Callable[[], Iterator[tuple[npt.NDArray[Any], int]]]: ...
def test() -> Callable[[], Iterator[tuple[npt.NDArray[Any], int]]]: ...
def fetch() -> None: ...
def convert(path: str | os.PathLike[str]) -> None: ...
