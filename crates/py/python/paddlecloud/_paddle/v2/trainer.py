"""Training with batches and events."""

from paddlecloud.legacy.training import Trainer as SGD

__all__ = ["SGD"]
