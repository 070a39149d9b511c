"""The table of kernels, and what every layer has: activation, dropout, clipping."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F

from paddlecloud.legacy.graph import Node
from paddlecloud.legacy.values import Sparse, Value

KERNELS = {}


def kernel(kind):
    def add(function):
        KERNELS[kind] = function
        return function

    return add


def compute(node: Node, inputs, run) -> Value:
    """The value of a node: its kernel, its activation, its dropout."""
    value = KERNELS[node.kind](node, inputs, run)
    if node.activation != "linear":
        value = activate(node, value)
    clip = node.conf.get("error_clip")
    if clip and not value.data.stop_gradient:
        value.data.register_hook(lambda gradient: paddle.clip(gradient, -clip, clip))
    if node.drop_rate:
        value = Value(_drop(value.data, node.drop_rate, run), value.starts)
    return value


def _drop(data, rate, run):
    """In training values are dropped and the rest left as it is; in testing all are scaled."""
    return F.dropout(data, rate, training=run.is_training, mode="downscale_in_infer")


def activate(node: Node, value: Value) -> Value:
    if node.activation == "softmax":
        return Value(None, value.starts, logits=value.data)
    if node.activation == "sequence_softmax":
        if value.starts is None or node.size != 1:
            raise node.fail("SequenceSoftmax needs a sequence of single numbers")
        return Value(_sequence_softmax(value), value.starts)
    return Value(ACTIVATIONS[node.activation](value.data), value.starts)


ACTIVATIONS = {
    "linear": lambda x: x,
    "tanh": F.tanh,
    "sigmoid": F.sigmoid,
    "softmax": lambda x: F.softmax(x, axis=-1),
    "relu": F.relu,
    "brelu": lambda x: paddle.clip(x, 0.0, 24.0),
    "softrelu": lambda x: F.softplus(paddle.clip(x, -40.0, 40.0)),
    "stanh": lambda x: 1.7159 * paddle.tanh(x * (2.0 / 3.0)),
    "abs": paddle.abs,
    "square": paddle.square,
    "exponential": paddle.exp,
    "log": paddle.log,
    "sqrt": paddle.sqrt,
    "reciprocal": paddle.reciprocal,
    "softsign": F.softsign,
}


def segments(starts):
    return paddle.to_tensor(np.repeat(np.arange(len(starts) - 1), np.diff(starts)))


def _sequence_softmax(value: Value):
    owner = segments(value.starts)
    highest = paddle.geometric.segment_max(value.data.detach(), owner)
    powers = paddle.exp(value.data - paddle.gather(highest, owner))
    return powers / paddle.gather(paddle.geometric.segment_sum(powers, owner), owner)


def starts_of(values):
    return next((value.starts for value in values if value.starts is not None), None)


def dense(value: Value):
    """Its rows as numbers."""
    if isinstance(value.data, Sparse):
        return paddle.to_tensor(value.data.dense())
    return value.data


def need_sequence(node, value):
    if value.starts is None:
        raise node.fail(f"`{node.inputs[0].name}` is not a sequence")
    return value.starts
