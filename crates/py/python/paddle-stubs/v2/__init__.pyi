from paddle.v2 import activation as activation
from paddle.v2 import attr as attr
from paddle.v2 import data_type as data_type
from paddle.v2 import dataset as dataset
from paddle.v2 import evaluator as evaluator
from paddle.v2 import event as event
from paddle.v2 import inference as inference
from paddle.v2 import layer as layer
from paddle.v2 import minibatch as minibatch
from paddle.v2 import networks as networks
from paddle.v2 import optimizer as optimizer
from paddle.v2 import parameters as parameters
from paddle.v2 import pooling as pooling
from paddle.v2 import reader as reader
from paddle.v2 import topology as topology
from paddle.v2 import trainer as trainer
from paddle.v2.inference import infer as infer
from paddle.v2.minibatch import batch as batch
from paddlecloud.legacy.settings import init as init

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
