"""What a data provider of v1 imports: `from paddle.trainer.PyDataProvider2 import *`."""

from paddlecloud.legacy.types import *  # noqa: F403
from paddlecloud.legacy.types import __all__ as _types
from paddlecloud.v1.provider import CacheType, provider

__all__ = [*_types, "CacheType", "provider"]
