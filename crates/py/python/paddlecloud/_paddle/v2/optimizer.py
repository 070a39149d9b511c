"""How parameters change by gradients, with the rules of 2017."""

from paddlecloud.legacy.optimizers import (
    AdaDelta,
    AdaGrad,
    Adam,
    Adamax,
    DecayedAdaGrad,
    L1Regularization,
    L2Regularization,
    ModelAverage,
    Momentum,
    Optimizer,
    RMSProp,
)

__all__ = [
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "Adamax",
    "DecayedAdaGrad",
    "L1Regularization",
    "L2Regularization",
    "ModelAverage",
    "Momentum",
    "Optimizer",
    "RMSProp",
]
