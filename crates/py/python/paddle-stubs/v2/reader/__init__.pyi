from paddle.v2.reader import creator as creator
from paddle.v2.reader import decorator as decorator
from paddle.v2.reader.decorator import ComposeNotAligned as ComposeNotAligned
from paddle.v2.reader.decorator import buffered as buffered
from paddle.v2.reader.decorator import cache as cache
from paddle.v2.reader.decorator import chain as chain
from paddle.v2.reader.decorator import compose as compose
from paddle.v2.reader.decorator import firstn as firstn
from paddle.v2.reader.decorator import map_readers as map_readers
from paddle.v2.reader.decorator import shuffle as shuffle
from paddle.v2.reader.decorator import xmap_readers as xmap_readers

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
