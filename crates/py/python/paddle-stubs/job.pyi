from paddlecloud.job import CephFSVolume as CephFSVolume
from paddlecloud.job import PaddleJob as PaddleJob
from paddlecloud.job import dist_train as dist_train

__all__ = ["CephFSVolume", "PaddleJob", "dist_train"]
