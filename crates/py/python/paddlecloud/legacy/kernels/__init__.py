"""How each kind of layer is computed by PaddlePaddle. Gradients are those of its automatic differentiation."""

from paddlecloud.legacy.kernels import costs, generation, rows, sequences  # noqa: F401 - they fill the table
from paddlecloud.legacy.kernels.base import compute

__all__ = ["compute"]
