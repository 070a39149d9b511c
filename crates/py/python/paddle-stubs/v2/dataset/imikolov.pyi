import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["DataType", "build_dict", "convert", "fetch", "test", "train"]

URL: str
MD5: str

class DataType:
    NGRAM: int
    SEQ: int

def build_dict(min_word_freq: int = 50) -> dict[str, int]: ...
def train(word_idx: Mapping[str, int], n: int, data_type: int = 1) -> Callable[[], Iterator[tuple[Any, ...]]]: ...
def test(word_idx: Mapping[str, int], n: int, data_type: int = 1) -> Callable[[], Iterator[tuple[Any, ...]]]: ...
def fetch() -> None: ...
def convert(path: str | os.PathLike[str]) -> None: ...
