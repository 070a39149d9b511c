from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["batch"]

_T = TypeVar("_T")

def batch(
    reader: Callable[[], Iterable[_T]], batch_size: int, drop_last: bool = False
) -> Callable[[], Iterator[list[_T]]]: ...
