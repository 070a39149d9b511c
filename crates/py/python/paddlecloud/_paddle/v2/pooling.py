"""How many values become one."""

from paddlecloud.legacy.poolings import Avg, CudnnAvg, CudnnMax, Max, SquareRootN, Sum
from paddlecloud.legacy.unsupported import POOLINGS, refuse

__all__ = ["Avg", "CudnnAvg", "CudnnMax", "Max", "SquareRootN", "Sum"]

__getattr__ = refuse("paddle.v2.pooling", POOLINGS)
