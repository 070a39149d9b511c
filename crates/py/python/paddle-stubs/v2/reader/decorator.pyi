from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

__all__ = [
    "ComposeNotAligned",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "shuffle",
    "xmap_readers",
]

_T = TypeVar("_T")
_S = TypeVar("_S")

class ComposeNotAligned(ValueError): ...

def map_readers(func: Callable[..., _T], *readers: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[_T]]: ...
def shuffle(reader: Callable[[], Iterable[_T]], buf_size: int) -> Callable[[], Iterator[_T]]: ...
def chain(*readers: Callable[[], Iterable[_T]]) -> Callable[[], Iterator[_T]]: ...
def compose(
    *readers: Callable[[], Iterable[Any]], check_alignment: bool = True
) -> Callable[[], Iterator[tuple[Any, ...]]]: ...
def firstn(reader: Callable[[], Iterable[_T]], n: int) -> Callable[[], Iterator[_T]]: ...
def cache(reader: Callable[[], Iterable[_T]]) -> Callable[[], Iterator[_T]]: ...
def buffered(reader: Callable[[], Iterable[_T]], size: int) -> Callable[[], Iterator[_T]]: ...
def xmap_readers(
    mapper: Callable[[_S], _T],
    reader: Callable[[], Iterable[_S]],
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Callable[[], Iterator[_T]]: ...
