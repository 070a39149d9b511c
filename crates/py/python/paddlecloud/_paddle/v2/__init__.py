"""`paddle.v2`: programs from 2017 on PaddlePaddle 3.

Describing a network and reading data need no PaddlePaddle; training and inference do.
"""

from paddle.v2 import (
    activation,
    attr,
    data_type,
    dataset,
    evaluator,
    event,
    inference,
    layer,
    minibatch,
    networks,
    optimizer,
    parameters,
    pooling,
    reader,
    topology,
    trainer,
)
from paddle.v2.inference import infer
from paddle.v2.minibatch import batch
from paddlecloud.legacy.settings import init
from paddlecloud.legacy.unsupported import MODULES, refuse

__all__ = [
    "activation",
    "attr",
    "batch",
    "data_type",
    "dataset",
    "evaluator",
    "event",
    "infer",
    "inference",
    "init",
    "layer",
    "minibatch",
    "networks",
    "optimizer",
    "parameters",
    "pooling",
    "reader",
    "topology",
    "trainer",
]

__getattr__ = refuse("paddle.v2", MODULES)
