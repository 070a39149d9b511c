from paddlecloud.legacy.training import Inference, infer

__all__ = ["Inference", "infer"]
