"""Stands where PaddlePaddle would be, for `paddle.v2` and `paddle.job` alone.

Loaded under the name `paddle`, and only when a program imports one of those two without PaddlePaddle.
"""

_WHY = "PaddlePaddle is not installed; paddlecloud contains only `paddle.v2`, `paddle.job` and `paddle.batch`"


def is_tensor(value):
    """Nothing is: programs that handle tensors of many libraries ask this of all they find loaded."""
    return False


def __getattr__(name):
    if name == "batch":
        from paddle.v2.minibatch import batch

        return batch
    raise AttributeError(f"module 'paddle' has no attribute {name!r}: {_WHY}")
