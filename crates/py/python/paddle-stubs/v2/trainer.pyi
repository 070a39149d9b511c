from paddlecloud.legacy.training import Trainer as SGD

__all__ = ["SGD"]
