"""Kernels on sequences: pooling, recurrent layers and groups."""

from __future__ import annotations

import numpy as np
import paddle

from paddlecloud.legacy.kernels import scans
from paddlecloud.legacy.kernels.base import ACTIVATIONS, compute, dense, kernel, need_sequence, segments
from paddlecloud.legacy.values import Sparse, Steps, Value


@kernel("seq_pool")
def _seq_pool(node, inputs, run):
    starts, data = need_sequence(node, inputs[0]), dense(inputs[0])
    kind = node.conf["pooling"]
    if kind in ("first", "last"):
        rows = starts[:-1] if kind == "first" else starts[1:] - 1
        return Value(paddle.gather(data, paddle.to_tensor(rows)))
    if kind == "max":
        return Value(_largest(data, starts))
    owner = segments(starts)
    if kind == "average":
        return Value(paddle.geometric.segment_mean(data, owner))
    total = paddle.geometric.segment_sum(data, owner)
    if kind == "sqrtn":
        total = total / paddle.to_tensor(np.sqrt(np.diff(starts)).astype(np.float32)).unsqueeze(-1)
    return Value(total)


def _largest(data, starts):
    """The largest value of each sequence and column. Of equal ones the first alone gets the gradient; `segment_max` would give it to each."""
    rows = np.from_dlpack(data.detach())
    best = np.repeat(np.maximum.reduceat(rows, starts[:-1], axis=0), np.diff(starts), axis=0)
    # The largest of values with a NaN is NaN, which equals nothing.
    at, column = np.nonzero((rows == best) | (rows != rows))
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    width = rows.shape[1]
    places = np.empty((len(starts) - 1, width), np.int64)
    # The last one written counts.
    places[owner[at[::-1]], column[::-1]] = (at * width + column)[::-1]
    return paddle.gather(data.reshape([-1]), paddle.to_tensor(places.reshape(-1))).reshape([-1, width])


@kernel("expand")
def _expand(node, inputs, run):
    like = inputs[1].starts
    if like is None:
        raise node.fail(f"`{node.inputs[1].name}` is not a sequence")
    return Value(paddle.gather(inputs[0].data, segments(like)), like)


@kernel("seq_concat")
def _seq_concat(node, inputs, run):
    a, b = inputs
    need_sequence(node, a)
    places, starts = [], [0]
    for number in range(len(a.starts) - 1):
        places += range(a.starts[number], a.starts[number + 1])
        places += range(a.starts[-1] + b.starts[number], a.starts[-1] + b.starts[number + 1])
        starts.append(len(places))
    joined = paddle.gather(paddle.concat([a.data, b.data]), paddle.to_tensor(np.array(places)))
    return Value(joined, np.array(starts))


@kernel("seq_reshape")
def _seq_reshape(node, inputs, run):
    starts = need_sequence(node, inputs[0]) * node.inputs[0].size
    if (starts % node.size).any():
        raise node.fail(f"a sequence's values cannot be divided into rows of {node.size}")
    return Value(inputs[0].data.reshape([-1, node.size]), starts // node.size)


def by_step(data, steps: Steps):
    """[steps, sequences, size], 0 past the ends."""
    if not steps.is_even:
        data = paddle.concat([data, paddle.zeros([1, data.shape[1]], data.dtype)])
    taken = paddle.gather(data, paddle.to_tensor(steps.index.reshape(-1)))
    return taken.reshape([steps.count, -1, data.shape[1]])


def _flat(outputs, steps: Steps):
    stacked = paddle.stack(outputs).reshape([-1, outputs[0].shape[-1]])
    return paddle.gather(stacked, paddle.to_tensor(steps.back))


def _scan(node, value, size, step):
    """Runs `step(x, h)` along all sequences at once, for activations that `scans` does not know; `h` is a tuple whose first part is the output."""
    starts = need_sequence(node, value)
    steps = Steps(starts, node.conf["reverse"])
    xs = paddle.unbind(by_step(dense(value), steps))
    state = tuple(paddle.zeros([len(starts) - 1, size]) for _ in range(2))
    outputs = []
    for x in xs:
        state = step(x, *state)
        outputs.append(state[0])
    return Value(_flat(outputs, steps), starts)


def _lstm_cell(sums, cell, peepholes, gates):
    act, gate, state_act = (ACTIVATIONS[name] for name in gates)
    candidate, keep_in, forget, out = paddle.split(sums, 4, axis=1)
    if peepholes is None:
        cell = act(candidate) * gate(keep_in) + cell * gate(forget)
        return gate(out) * state_act(cell), cell
    to_in, to_forget, to_out = peepholes
    cell = act(candidate) * gate(keep_in + cell * to_in) + cell * gate(forget + cell * to_forget)
    return gate(out + cell * to_out) * state_act(cell), cell


@kernel("lstmemory")
def _lstmemory(node, inputs, run):
    size, conf = node.size, node.conf
    weight = run.parameter(conf["weights"][0]).reshape([size, 4 * size])
    value, peepholes = inputs[0], None
    if scans.knows(conf["gates"]):
        bias = run.parameter(conf["bias"]) if conf["bias"] is not None else None
        order = scans.Order(need_sequence(node, value), conf["reverse"])
        return Value(scans.Lstm.apply(dense(value), weight, bias, order, conf["gates"]), value.starts)
    if conf["bias"] is not None:
        offset = run.parameter(conf["bias"])
        value = Value(dense(value) + offset[:, : 4 * size], value.starts)
        peepholes = paddle.split(offset[:, 4 * size :], 3, axis=1)
    return _scan(
        node, value, size, lambda x, h, c: _lstm_cell(x + paddle.matmul(h, weight), c, peepholes, conf["gates"])
    )


@kernel("lstm_step")
def _lstm_step(node, inputs, run):
    peepholes = None
    if node.conf["bias"] is not None:
        peepholes = paddle.split(run.parameter(node.conf["bias"]), 3, axis=1)
    out, cell = _lstm_cell(inputs[0].data, inputs[1].data, peepholes, node.conf["gates"])
    return Value(out, extra={"state": cell})


@kernel("get_output")
def _get_output(node, inputs, run):
    extra = inputs[0].extra or {}
    if node.conf["output"] not in extra:
        raise node.fail(f"`{node.inputs[0].name}` has no output `{node.conf['output']}`")
    return Value(extra[node.conf["output"]], inputs[0].starts)


def _gru_weights(node, run):
    """Both gates' weights are in one block, the candidate's in the next one."""
    size = node.size
    flat = run.parameter(node.conf["weights"][0]).reshape([-1])
    return flat[: 2 * size * size].reshape([size, 2 * size]), flat[2 * size * size :].reshape([size, size])


def _gru_cell(x, h, to_gates, to_candidate, gates):
    act, gate = ACTIVATIONS[gates[0]], ACTIVATIONS[gates[1]]
    size = h.shape[1]
    opened = gate(x[:, : 2 * size] + paddle.matmul(h, to_gates))
    update, reset = opened[:, :size], opened[:, size:]
    candidate = act(x[:, 2 * size :] + paddle.matmul(h * reset, to_candidate))
    return h - update * h + update * candidate


@kernel("grumemory")
def _grumemory(node, inputs, run):
    to_gates, to_candidate = _gru_weights(node, run)
    value = inputs[0]
    if node.conf["bias"] is not None:
        value = Value(dense(value) + run.parameter(node.conf["bias"]), value.starts)
    if scans.knows(node.conf["gates"]):
        order = scans.Order(need_sequence(node, value), node.conf["reverse"])
        return Value(scans.Gru.apply(dense(value), to_gates, to_candidate, order, node.conf["gates"]), value.starts)
    return _scan(
        node, value, node.size, lambda x, h, _: (_gru_cell(x, h, to_gates, to_candidate, node.conf["gates"]), h)
    )


@kernel("gru_step")
def _gru_step(node, inputs, run):
    x = inputs[0].data
    if node.conf["bias"] is not None:
        x = x + run.parameter(node.conf["bias"])
    return Value(_gru_cell(x, inputs[1].data, *_gru_weights(node, run), node.conf["gates"]))


@kernel("recurrent")
def _recurrent(node, inputs, run):
    weight, act = run.parameter(node.conf["weights"][0]), ACTIVATIONS[node.conf["gates"][0]]
    value = inputs[0]
    if node.conf["bias"] is not None:
        value = Value(dense(value) + run.parameter(node.conf["bias"]), value.starts)
    if scans.knows(node.conf["gates"]):
        order = scans.Order(need_sequence(node, value), node.conf["reverse"])
        return Value(scans.Recurrent.apply(dense(value), weight, order, node.conf["gates"]), value.starts)
    return _scan(node, value, node.size, lambda x, h, _: (act(x + paddle.matmul(h, weight)), h))


@kernel("recurrent_group")
def _recurrent_group(node, inputs, run):
    conf = node.conf
    known = {id(origin): value for origin, value in zip(node.inputs, inputs)}
    first = known[id(conf["sequences"][0][1])]
    starts = first.starts
    if starts is None:
        raise node.fail(f"`{conf['sequences'][0][1].name}` is not a sequence")
    steps = Steps(starts, conf["reverse"])
    fed = []
    for inner, origin in conf["sequences"]:
        value = known[id(origin)]
        if value.starts is None or not np.array_equal(value.starts, starts):
            raise node.fail(
                f"the sequences of `{origin.name}` and `{conf['sequences'][0][1].name}` have different lengths"
            )
        fed.append((inner, _steps_of(value, steps)))
    fixed = {id(inner): known[id(origin)] for inner, origin in conf["statics"]}
    batch = len(starts) - 1
    carried = {}
    for inner, _, boot in conf["memories"]:
        carried[id(inner)] = known[id(boot)].data if boot is not None else first_state(inner, batch)
    later = _after_the_steps(conf)
    kept = {id(each): [] for each in _kept_of_steps(conf, later)}
    for at in range(steps.count):
        values = {**fixed, **{id(inner): Value(xs[at]) for inner, xs in fed}}
        values.update({key: Value(data) for key, data in carried.items()})
        for inner in conf["body"]:
            if id(inner) not in values and id(inner) not in later:
                values[id(inner)] = compute(inner, [values[id(parent)] for parent in inner.inputs], run)
        for key, each in kept.items():
            each.append(values[key].data)
        for inner, source, _ in conf["memories"]:
            carried[id(inner)] = values[id(source)].data
    flat = {id(inner): known[id(origin)] for inner, origin in conf["sequences"]}
    flat.update({key: Value(_flat(each, steps), starts) for key, each in kept.items()})
    for inner in later.values():
        flat[id(inner)] = compute(inner, [flat[id(parent)] for parent in inner.inputs], run)
    outputs = [flat[id(out)] for out in conf["outputs"]]
    return outputs[0].with_extra({"outputs": outputs})


# Kinds whose rows do not depend on each other, nor on a sequence.
_BY_ROW = {"fc", "addto", "concat", "slope_intercept", "clip", "sum_to_one_norm", "row_l2_norm", "dot_prod", "cos_sim"}


def _after_the_steps(conf):
    """The layers of a group that no memory needs and that treat every row alike: they are computed once for all steps.

    The gradient of a weight is as large as the weight, so that the layer for all words of a translation would cost most of the time.
    """
    known = {id(inner) for inner, _ in conf["sequences"]} | {id(inner) for inner in conf["body"]}
    known -= {id(inner) for inner, _ in conf["statics"]} | {id(inner) for inner, *_ in conf["memories"]}
    in_steps = {id(source) for _, source, _ in conf["memories"]}
    later = {}
    for inner in reversed(conf["body"]):
        is_by_row = inner.kind in _BY_ROW and inner.inputs and all(id(parent) in known for parent in inner.inputs)
        if is_by_row and id(inner) not in in_steps:
            later[id(inner)] = inner
        else:
            in_steps.update(id(parent) for parent in inner.inputs)
    return dict(reversed(later.items()))


def _kept_of_steps(conf, later):
    """What is needed of every step: outputs, and what later layers read."""
    fed = {id(inner) for inner, _ in conf["sequences"]}
    wanted = [*conf["outputs"], *(parent for inner in later.values() for parent in inner.inputs)]
    return {id(each): each for each in wanted if id(each) not in later and id(each) not in fed}.values()


def first_state(inner, batch):
    if inner.conf["boot_id"] is not None:
        return paddle.full([batch], inner.conf["boot_id"], "int64")
    return paddle.zeros([batch, inner.size])


def _steps_of(value, steps):
    if isinstance(value.data, Sparse) or value.data.ndim == 2:
        return paddle.unbind(by_step(dense(value), steps))
    # Ids past the end of a sequence are 0, whose results are dropped.
    padded = paddle.concat([value.data, paddle.zeros([1], value.data.dtype)])
    return paddle.unbind(paddle.gather(padded, paddle.to_tensor(steps.index.reshape(-1))).reshape([steps.count, -1]))


@kernel("group_output")
def _group_output(node, inputs, run):
    return inputs[0].extra["outputs"][node.conf["number"]]
