"""Kernels that treat every row alike: sums of projections, dense layers, images."""

from __future__ import annotations

import math

import numpy as np
import paddle
import paddle.nn.functional as F

from paddlecloud.legacy.kernels.base import KERNELS, dense, kernel, starts_of
from paddlecloud.legacy.values import Sparse, Value


def _full_matrix(part, values, weight, run):
    (value,) = values
    if isinstance(value.data, Sparse):
        return _sparse_rows(value.data, weight)
    return paddle.matmul(value.data, weight)


def _sparse_rows(sparse: Sparse, weight):
    """The product of sparse rows and a matrix: sums of the matrix's rows."""
    rows = len(sparse.starts) - 1
    if not len(sparse.ids):
        return paddle.zeros([rows, weight.shape[1]]) + 0.0 * weight.sum()
    taken = F.embedding(paddle.to_tensor(sparse.ids), weight)
    if sparse.values is not None:
        taken = taken * paddle.to_tensor(sparse.values).unsqueeze(-1)
    found = paddle.geometric.segment_sum(taken, paddle.to_tensor(sparse.rows))
    missing = rows - found.shape[0]
    return F.pad(found, [0, missing, 0, 0]) if missing else found


def _table(part, values, weight, run):
    (value,) = values
    if isinstance(value.data, Sparse):
        return _sparse_rows(value.data, weight)
    return F.embedding(value.data, weight)


def _context(part, values, weight, run):
    (value,) = values
    starts = value.starts
    if starts is None:
        raise ValueError("`context_projection` needs a sequence")
    total = int(starts[-1])
    at = np.arange(total)
    first = np.repeat(starts[:-1], np.diff(starts))
    end = np.repeat(starts[1:], np.diff(starts))
    padded = paddle.concat([value.data, paddle.zeros([1, value.data.shape[1]])])
    places = at[:, None] + part.conf["start"] + np.arange(part.conf["length"])[None, :]
    places = np.where((places >= first[:, None]) & (places < end[:, None]), places, total)
    return paddle.gather(padded, paddle.to_tensor(places.reshape(-1))).reshape([total, -1])


PROJECTIONS = {
    "full_matrix": _full_matrix,
    "trans_full_matrix": lambda part, values, weight, run: paddle.matmul(dense(values[0]), weight, transpose_y=True),
    "table": _table,
    "identity": lambda part, values, weight, run: dense(values[0]),
    "slice": lambda part, values, weight, run: paddle.concat(
        [values[0].data[:, a:b] for a, b in part.conf["slices"]], axis=1
    ),
    "scaling": lambda part, values, weight, run: values[0].data * weight,
    "dotmul": lambda part, values, weight, run: values[0].data * weight,
    "context": _context,
    "dotmul_operator": lambda part, values, weight, run: values[0].data * values[1].data * part.conf["scale"],
}


def _parts(node, inputs, run):
    waiting = iter(inputs)
    for part, spec in zip(node.conf["parts"], node.conf["weights"]):
        values = [next(waiting) for _ in part.inputs]
        weight = run.parameter(spec) if spec is not None else None
        yield PROJECTIONS[part.kind](part, values, weight, run)


def _sum(node, inputs, run):
    found = _at_once(node, inputs, run)
    if found is not None:
        return Value(found, starts_of(inputs))
    parts = list(_parts(node, inputs, run))
    if node.conf["joined"]:
        total = paddle.concat(parts, axis=1) if len(parts) > 1 else parts[0]
    else:
        total = parts[0]
        for part in parts[1:]:
            total = total + part
    if node.conf["bias"] is not None:
        total = total + run.parameter(node.conf["bias"])
    return Value(total, starts_of(inputs))


def _at_once(node, inputs, run):
    """One operation for the commonest sums: a matrix with a bias, and words side by side that share a table."""
    parts, weights, offset = node.conf["parts"], node.conf["weights"], node.conf["bias"]
    if any(isinstance(value.data, Sparse) for value in inputs):
        return None
    if len(parts) == 1 and parts[0].kind == "full_matrix" and offset is not None:
        return F.linear(inputs[0].data, run.parameter(weights[0]), run.parameter(offset).reshape([-1]))
    if len(parts) > 1 and offset is None and node.conf["joined"]:
        if all(part.kind == "table" and spec.name == weights[0].name for part, spec in zip(parts, weights)):
            words = paddle.stack([value.data for value in inputs], axis=1)
            return F.embedding(words, run.parameter(weights[0])).reshape([words.shape[0], -1])
    return None


for _kind in ("mixed", "fc", "addto", "concat"):
    KERNELS[_kind] = _sum


def _simple(kind):
    """A kernel on the inputs' rows alone; the result is a sequence where an input is one."""

    def add(function):
        KERNELS[kind] = lambda node, inputs, run: Value(function(node, *map(dense, inputs)), starts_of(inputs))
        return function

    return add


_simple("slope_intercept")(lambda node, x: x * node.conf["slope"] + node.conf["intercept"])
_simple("scaling")(lambda node, weight, x: x * weight)
_simple("interpolation")(lambda node, weight, a, b: weight * a + (1 - weight) * b)
_simple("power")(lambda node, weight, x: paddle.pow(x, weight))
_simple("dot_prod")(lambda node, a, b: (a * b).sum(axis=1, keepdim=True))
_simple("sum_to_one_norm")(lambda node, x: x / x.sum(axis=1, keepdim=True))
_simple("row_l2_norm")(lambda node, x: x / paddle.sqrt((x * x).sum(axis=1, keepdim=True)))
_simple("clip")(lambda node, x: paddle.clip(x, node.conf["low"], node.conf["high"]))


@_simple("cos_sim")
def _cos_sim(node, a, b):
    norm = paddle.sqrt((a * a).sum(axis=1, keepdim=True) * (b * b).sum(axis=1, keepdim=True))
    return node.conf["scale"] * (a * b).sum(axis=1, keepdim=True) / norm


_simple("max_id")(lambda node, x: paddle.argmax(x, axis=1))
_simple("eos")(lambda node, ids: paddle.cast(ids == node.conf["eos"], "int64"))


def _picture(x, image):
    return x.reshape([-1, image.channels, image.height, image.width])


@_simple("img_pool")
def _img_pool(node, x):
    conf, image, made = node.conf, node.conf["source"], node.image
    x = _picture(x, image)
    # Padded at the far side to the size that rounding up asks for, with what changes neither a maximum nor a mean.
    far = [
        (out - 1) * step + kernel - side - pad
        for out, step, kernel, side, pad in zip(
            (made.height, made.width), conf["stride"], conf["kernel"], (image.height, image.width), conf["padding"]
        )
    ]
    near = conf["padding"]
    pads = [near[1], max(far[1], 0), near[0], max(far[0], 0)]
    is_mean = conf["pooling"] in ("average", "sum", "sqrtn")
    is_padded = any(pads)
    padded = F.pad(x, pads, value=0.0 if is_mean else -math.inf) if is_padded else x
    if not is_mean:
        found = F.max_pool2d(padded, conf["kernel"], conf["stride"])
    else:
        found = F.avg_pool2d(padded, conf["kernel"], conf["stride"], exclusive=False)
        if conf["pooling"] != "average":
            found = found * (conf["kernel"][0] * conf["kernel"][1])
        elif is_padded and conf["exclude"]:
            inside = F.pad(paddle.ones([1, 1, image.height, image.width]), pads)
            found = found / F.avg_pool2d(inside, conf["kernel"], conf["stride"], exclusive=False)
    if tuple(found.shape[2:]) != (made.height, made.width):
        found = found[:, :, : made.height, : made.width]
    return found.reshape([-1, node.size])


@_simple("img_cmrnorm")
def _img_cmrnorm(node, x):
    conf = node.conf
    x = _picture(x, node.image)
    before = (conf["width"] - 1) // 2
    zeros = [paddle.zeros([x.shape[0], count, *x.shape[2:]]) for count in (before, conf["width"] - 1 - before)]
    squares = paddle.concat([zeros[0], x * x, zeros[1]], axis=1)
    total = sum(squares[:, shift : shift + x.shape[1]] for shift in range(conf["width"]))
    return (x * paddle.pow(1 + conf["scale"] * total, -conf["power"])).reshape([-1, node.size])


@kernel("img_conv")
def _img_conv(node, inputs, run):
    conf, image = node.conf, node.conf["source"]
    filters = run.parameter(conf["weights"][0]).reshape(
        [node.image.channels, image.channels // conf["groups"], *conf["kernel"]]
    )
    x = _picture(dense(inputs[0]), image)
    found = F.conv2d(x, filters, None, conf["stride"], conf["padding"], conf["dilation"], conf["groups"])
    if conf["bias"] is not None:
        offset = run.parameter(conf["bias"])
        shape = [1, -1, 1, 1] if conf["shared"] else [1, node.image.channels, node.image.height, node.image.width]
        found = found + offset.reshape(shape)
    return Value(found.reshape([-1, node.size]), inputs[0].starts)


@kernel("batch_norm")
def _batch_norm(node, inputs, run):
    conf = node.conf
    scale, mean, variance = (run.parameter(spec).reshape([-1]) for spec in conf["weights"])
    offset = paddle.zeros_like(scale) if conf["bias"] is None else run.parameter(conf["bias"]).reshape([-1])
    x = dense(inputs[0]).reshape([-1, conf["channels"], node.size // conf["channels"], 1])
    is_by_batch = run.is_training and not conf["use_global"]
    if is_by_batch:
        # With nothing kept of what was there, they become the batch's own.
        mean, variance = paddle.zeros_like(mean), paddle.zeros_like(variance)
    x = F.batch_norm(x, mean, variance, scale, offset, is_by_batch, momentum=0.0, epsilon=conf["epsilon"])
    if is_by_batch:
        run.keep_running(conf["weights"][1], mean, conf["fraction"])
        run.keep_running(conf["weights"][2], variance, conf["fraction"])
    return Value(x.reshape([-1, node.size]), inputs[0].starts)
