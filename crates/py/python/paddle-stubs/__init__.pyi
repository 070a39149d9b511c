"""What `paddle` has beside `paddle.v2` and `paddle.job`: `batch`, and PaddlePaddle's own attributes.

A stub package cannot hand on what it stands in front of, so PaddlePaddle's own attributes are `Any` here. Its modules keep
their types in mypy: the marker `partial` has it look for them in PaddlePaddle.
"""

from typing import Any

from paddle.v2.minibatch import batch as batch

def __getattr__(name: str) -> Any: ...
