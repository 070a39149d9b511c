import os
from collections.abc import Callable, Iterator
from typing import Any

from paddlecloud.legacy.parameters import Parameters

__all__ = ["convert", "fetch", "gen", "get_dict", "model", "test", "train"]

URL_TRAIN: str
MD5_TRAIN: str
URL_MODEL: str
MD5_MODEL: str
START: str
END: str
UNK: str
UNK_IDX: int

_Sentences = Callable[[], Iterator[tuple[list[int], list[int], list[int]]]]

def train(dict_size: int) -> _Sentences: ...
def test(dict_size: int) -> _Sentences: ...
def gen(dict_size: int) -> _Sentences: ...
def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], ...]: ...
def model() -> Parameters: ...
def fetch() -> None: ...
def convert(path: str | os.PathLike[str]) -> None: ...
