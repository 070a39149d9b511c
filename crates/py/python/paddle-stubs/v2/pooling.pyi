from paddlecloud.legacy.poolings import Avg, CudnnAvg, CudnnMax, Max, SquareRootN, Sum

__all__ = ["Avg", "CudnnAvg", "CudnnMax", "Max", "SquareRootN", "Sum"]
