"""Kernels of costs: one row per sample, or per position of a sequence."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F

from paddlecloud.legacy.kernels.base import dense, kernel, need_sequence, segments
from paddlecloud.legacy.kernels.sequences import by_step
from paddlecloud.legacy.values import Sparse, Steps, Value


def _label_rows(node, score, label):
    """Numbers of the right classes, checked against the score's rows."""
    if isinstance(label.data, Sparse) or label.data.ndim != 1:
        raise node.fail(f"the label `{node.inputs[1].name}` must be an integer_value")
    rows = (score.data if score.logits is None else score.logits).shape[0]
    if rows != label.data.shape[0]:
        raise node.fail(f"{rows} rows of `{node.inputs[0].name}` for {label.data.shape[0]} labels")
    return label.data


def _cross_entropy(node, score, label):
    if not isinstance(label.data, Sparse) and label.data.ndim == 2:
        return -(label.data * paddle.log(score.data)).sum(axis=1, keepdim=True)
    ids = _label_rows(node, score, label).unsqueeze(-1)
    if score.logits is not None:
        return F.cross_entropy(score.logits, ids, reduction="none")
    return -paddle.log(paddle.take_along_axis(score.data, ids, axis=1))


def _selfnorm(node, score, label):
    """Cross entropy of exponentials that are not normalized, with a price for the distance of their sum from 1."""
    ids = _label_rows(node, score, label).unsqueeze(-1)
    log_total = paddle.log(score.data.sum(axis=1, keepdim=True))
    chosen = paddle.take_along_axis(score.data, ids, axis=1)
    return -paddle.log(chosen) + log_total + node.conf["alpha"] * log_total * log_total


def _binary_cross_entropy(node, score, label):
    wanted, p = dense(label), score.data
    if wanted.ndim == 1:
        wanted = F.one_hot(wanted, node.inputs[0].size)
    return -(wanted * paddle.log(p) + (1 - wanted) * paddle.log(1 - p)).sum(axis=1, keepdim=True)


def _huber_regression(node, score, label):
    off, delta = paddle.abs(score.data - dense(label)), node.conf["delta"]
    return paddle.where(off <= delta, 0.5 * off * off, delta * (off - 0.5 * delta)).sum(axis=1, keepdim=True)


def _huber_classification(node, score, label):
    margin = score.data * (2.0 * paddle.cast(_label_rows(node, score, label), "float32") - 1.0).unsqueeze(-1)
    return paddle.where(
        margin < -1, -4.0 * margin, paddle.where(margin < 1, (1 - margin) * (1 - margin), paddle.zeros_like(margin))
    )


def _smooth_l1(node, score, label):
    off = paddle.abs(score.data - dense(label))
    return paddle.where(off < 1, 0.5 * off * off, off - 0.5).sum(axis=1, keepdim=True)


def _rank(node, left, right, label):
    off, wanted = left.data - right.data, dense(label)
    wanted = paddle.cast(wanted, "float32").reshape(off.shape)
    return F.softplus(off) - wanted * off


def _square_error(node, score, label):
    off = score.data - dense(label)
    return (off * off).sum(axis=1, keepdim=True)


COSTS = {
    "square_error": _square_error,
    "cross_entropy": _cross_entropy,
    "selfnorm_cross_entropy": _selfnorm,
    "binary_cross_entropy": _binary_cross_entropy,
    "huber_regression": _huber_regression,
    "huber_classification": _huber_classification,
    "smooth_l1": _smooth_l1,
    "rank": _rank,
    "sum": lambda node, value: dense(value).sum(axis=1, keepdim=True),
}


@kernel("cost")
def _cost(node, inputs, run):
    *inputs, weight = inputs if node.conf["has_weight"] else [*inputs, None]
    cost = COSTS[node.conf["rule"]](node, *inputs)
    return Value(_weighted(cost, weight, node), inputs[0].starts)


def _weighted(cost, weight, node):
    if weight is not None:
        cost = cost * weight.data
    return cost if node.conf["coeff"] == 1.0 else cost * node.conf["coeff"]


# Linear chain: row 0 of the weights is for the first tag, row 1 for the last, the others are the transitions.


@kernel("crf")
def _crf(node, inputs, run):
    *inputs, weight = inputs if node.conf["has_weight"] else [*inputs, None]
    value, label = inputs
    starts = need_sequence(node, value)
    weights = run.parameter(node.conf["weights"][0])
    begin, end, across = weights[0:1], weights[1:2], weights[2:]
    steps = Steps(starts)
    xs = paddle.unbind(by_step(dense(value), steps))
    alive = paddle.unbind(paddle.to_tensor(steps.alive[:, :, None].astype(np.float32)))
    score = xs[0] + begin
    for x, on in zip(xs[1:], alive[1:]):
        following = paddle.logsumexp(score.unsqueeze(2) + across.unsqueeze(0), axis=1) + x
        score = on * following + (1 - on) * score
    total = paddle.logsumexp(score + end, axis=1, keepdim=True)
    cost = total - _path_score(node, value, label, starts, weights)
    return Value(_weighted(cost, weight, node))


def _path_score(node, value, label, starts, weights):
    """The score of the given tags, per sequence."""
    tags = _label_rows(node, value, label)
    owner = segments(starts)
    size = node.inputs[0].size
    emitted = paddle.take_along_axis(dense(value), tags.unsqueeze(-1), axis=1)
    found = paddle.geometric.segment_sum(emitted, owner)
    numbers = tags.numpy()
    places = np.concatenate([numbers[starts[:-1]], size + numbers[starts[1:] - 1]])
    whose = np.concatenate([np.arange(len(starts) - 1)] * 2)
    inner = np.setdiff1d(np.arange(1, len(numbers)), starts[1:-1])
    places = np.concatenate([places, (2 + numbers[inner - 1]) * size + numbers[inner]])
    whose = np.concatenate([whose, np.searchsorted(starts, inner, side="right") - 1])
    by_sequence = np.argsort(whose, kind="stable")
    taken = paddle.gather(weights.reshape([-1, 1]), paddle.to_tensor(places[by_sequence]))
    return found + paddle.geometric.segment_sum(taken, paddle.to_tensor(whose[by_sequence]))


@kernel("crf_decoding")
def _crf_decoding(node, inputs, run):
    starts = need_sequence(node, inputs[0])
    weights = run.parameter(node.conf["weights"][0]).numpy()
    scores = dense(inputs[0]).numpy()
    tags = np.concatenate([_best_path(scores[a:b], weights) for a, b in zip(starts, starts[1:])])
    if len(inputs) == 1:
        return Value(paddle.to_tensor(tags), starts)
    wrong = (tags != inputs[1].data.numpy()).astype(np.float32)
    return Value(paddle.to_tensor(wrong).unsqueeze(-1), starts, extra={"ids": tags})


def _best_path(scores, weights):
    begin, end, across = weights[0], weights[1], weights[2:]
    best, back = begin + scores[0], []
    for row in scores[1:]:
        ways = best[:, None] + across
        back.append(ways.argmax(axis=0))
        best = ways.max(axis=0) + row
    path = [int((best + end).argmax())]
    for came_from in reversed(back):
        path.append(int(came_from[path[-1]]))
    return np.array(path[::-1], np.int64)
