"""Readers, and readers derived from them.

A reader is a function without arguments that gives samples one by one; a decorator makes a reader of readers.
"""

from paddle.v2.reader import creator, decorator
from paddle.v2.reader.decorator import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
    xmap_readers,
)

__all__ = [
    "ComposeNotAligned",
    "buffered",
    "cache",
    "chain",
    "compose",
    "creator",
    "decorator",
    "firstn",
    "map_readers",
    "shuffle",
    "xmap_readers",
]
