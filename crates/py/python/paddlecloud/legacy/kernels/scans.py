"""Recurrent layers along whole sequences, in numpy and with gradients of their own.

For the rows of one step, an operation of numpy costs a fraction of one of PaddlePaddle, and the gradient of a weight is one product
for all steps. Activations without a gradient here are left to the kernels that go step by step.
"""

from __future__ import annotations

import numpy as np
import paddle
from paddle.autograd import PyLayer


class Order:
    """Rows of sequences by time step, the longest sequence first: those still running at a step are the first of the step before.

    `rows[k]` is the row of the flat form at place k, `before[k]` the place one step earlier of place `first + k`, where `first` is the
    number of sequences.
    """

    def __init__(self, starts, reverse):
        lengths = np.diff(starts)
        by_length = np.argsort(-lengths, kind="stable")
        lengths = lengths[by_length]
        at = np.arange(lengths[0])[:, None]
        alive = at < lengths[None, :]
        first = starts[:-1][by_length][None, :]
        self.rows = (first + (lengths[None, :] - 1 - at if reverse else at))[alive]
        self.counts = alive.sum(axis=1)
        ends = np.cumsum(self.counts)
        self.starts = ends - self.counts
        self.before = (self.starts[:-1, None] + np.arange(len(lengths)))[alive[1:]]
        self.first = len(lengths)

    def steps(self):
        """For each step its places, and those of the same sequences one step earlier."""
        earlier = None
        for start, count in zip(self.starts.tolist(), self.counts.tolist()):
            yield slice(start, start + count), None if earlier is None else slice(earlier, earlier + count)
            earlier = start

    def gather(self, tensor):
        return _array(tensor).take(self.rows, axis=0)

    def scatter(self, values):
        found = np.empty_like(values)
        found[self.rows] = values
        return paddle.to_tensor(found)

    def earlier(self, values):
        """What was at the same sequences one step earlier; at first 0."""
        found = np.zeros_like(values)
        found[self.first :] = values[self.before]
        return found


def _array(tensor):
    return np.from_dlpack(tensor.detach())


def _remember(ctx, tensors, *kept):
    ctx.has_gradient = [not tensor.stop_gradient for tensor in tensors if tensor is not None]
    ctx.kept = kept


def _gradients(ctx, *found):
    """`None` for inputs that need none, such as static parameters."""
    return tuple(gradient if has else None for gradient, has in zip(found, ctx.has_gradient))


def _sigmoid(x):
    """In place; by way of tanh, which does not overflow."""
    x *= 0.5
    np.tanh(x, out=x)
    x *= 0.5
    x += 0.5
    return x


# In place, and the slope by the result.
_ACTIVATIONS = {
    "tanh": (lambda x: np.tanh(x, out=x), lambda y: 1 - y * y),
    "sigmoid": (_sigmoid, lambda y: y * (1 - y)),
    "relu": (lambda x: np.maximum(x, 0, out=x), lambda y: (y > 0).astype(np.float32)),
    "linear": (lambda x: x, np.ones_like),
}


def knows(names) -> bool:
    return all(name in _ACTIVATIONS for name in names)


class Lstm(PyLayer):
    """Gates are candidate, input, forget and output; `bias` has the three peepholes behind it, or is `None`."""

    @staticmethod
    def forward(ctx, x, weight, bias, order, names):
        (act, _), (gate, _), (state_act, _) = (_ACTIVATIONS[name] for name in names)
        gates, w = order.gather(x), _array(weight)
        size = w.shape[0]
        peepholes = None
        if bias is not None:
            offset = _array(bias).reshape(-1)
            gates += offset[: 4 * size]
            peepholes = offset[4 * size :].reshape(3, size)
        hidden, cells, squashed = (np.empty((len(gates), size), np.float32) for _ in range(3))
        for now, earlier in order.steps():
            g, cell = gates[now], cells[now]
            if earlier is not None:
                g += hidden[earlier] @ w
                if peepholes is not None:
                    g[:, size : 3 * size] += (cells[earlier][:, None] * peepholes[:2]).reshape(-1, 2 * size)
            gate(g[:, size : 3 * size])
            np.multiply(act(g[:, :size]), g[:, size : 2 * size], out=cell)
            if earlier is not None:
                cell += cells[earlier] * g[:, 2 * size : 3 * size]
            if peepholes is not None:
                g[:, 3 * size :] += cell * peepholes[2]
            squashed[now] = cell
            np.multiply(gate(g[:, 3 * size :]), state_act(squashed[now]), out=hidden[now])
        _remember(ctx, (x, weight, bias), order, names, w, peepholes, gates, hidden, cells, squashed)
        return order.scatter(hidden)

    @staticmethod
    def backward(ctx, gradient):
        order, names, w, peepholes, gates, hidden, cells, squashed = ctx.kept
        slope, gate_slope, state_slope = (_ACTIVATIONS[name][1] for name in names)
        size = w.shape[0]
        candidate, keep_in, forget, out = (gates[:, k * size : (k + 1) * size] for k in range(4))
        back, cell_before = order.gather(gradient), order.earlier(cells)
        to_out, to_cell = squashed * gate_slope(out), out * state_slope(squashed)
        found = np.empty((len(gates), 4, size), np.float32)
        found[:, 0], found[:, 1] = keep_in * slope(candidate), candidate * gate_slope(keep_in)
        found[:, 2] = cell_before * gate_slope(forget)
        d_cells = np.zeros_like(hidden)
        turned = np.ascontiguousarray(w.T)
        flat = found.reshape(-1, 4 * size)
        for now, earlier in reversed(list(order.steps())):
            dh, dc, d = back[now], d_cells[now], found[now]
            np.multiply(dh, to_out[now], out=d[:, 3])
            dc += dh * to_cell[now]
            if peepholes is not None:
                dc += d[:, 3] * peepholes[2]
            d[:, :3] *= dc[:, None]
            if earlier is None:
                continue
            back[earlier] += flat[now] @ turned
            d_cells[earlier] += dc * forget[now]
            if peepholes is not None:
                d_cells[earlier] += d[:, 1] * peepholes[0] + d[:, 2] * peepholes[1]
        results = [order.scatter(flat), paddle.to_tensor(hidden[order.before].T @ flat[order.first :])]
        if peepholes is not None:
            by_cell = [(found[:, 1] * cell_before).sum(axis=0), (found[:, 2] * cell_before).sum(axis=0), (found[:, 3] * cells).sum(axis=0)]
            results.append(paddle.to_tensor(np.concatenate([flat.sum(axis=0), *by_cell])[None]))
        return _gradients(ctx, *results)


class Gru(PyLayer):
    """Gates are update, reset and candidate. Weights are two: those of both gates, and the candidate's."""

    @staticmethod
    def forward(ctx, x, to_gates, to_candidate, order, names):
        (act, _), (gate, _) = (_ACTIVATIONS[name] for name in names[:2])
        sums, w, v = order.gather(x), _array(to_gates), _array(to_candidate)
        size = v.shape[0]
        hidden, reset = (np.zeros((len(sums), size), np.float32) for _ in range(2))
        for now, earlier in order.steps():
            s, h = sums[now], hidden[now]
            if earlier is None:
                gate(s[:, : 2 * size])
                np.multiply(s[:, :size], act(s[:, 2 * size :]), out=h)
                continue
            before = hidden[earlier]
            s[:, : 2 * size] += before @ w
            gate(s[:, : 2 * size])
            np.multiply(before, s[:, size : 2 * size], out=reset[now])
            s[:, 2 * size :] += reset[now] @ v
            np.subtract(act(s[:, 2 * size :]), before, out=h)
            h *= s[:, :size]
            h += before
        _remember(ctx, (x, to_gates, to_candidate), order, names, w, v, sums, hidden, reset)
        return order.scatter(hidden)

    @staticmethod
    def backward(ctx, gradient):
        order, names, w, v, sums, hidden, reset = ctx.kept
        slope, gate_slope = (_ACTIVATIONS[name][1] for name in names[:2])
        size = v.shape[0]
        update, keep, candidate = (sums[:, k * size : (k + 1) * size] for k in range(3))
        back, before = order.gather(gradient), order.earlier(hidden)
        found = np.empty_like(sums)
        d_update, d_keep, d_candidate = (found[:, k * size : (k + 1) * size] for k in range(3))
        np.multiply(candidate - before, gate_slope(update), out=d_update)
        np.multiply(before, gate_slope(keep), out=d_keep)
        np.multiply(update, slope(candidate), out=d_candidate)
        w_turned, v_turned = np.ascontiguousarray(w.T), np.ascontiguousarray(v.T)
        for now, earlier in reversed(list(order.steps())):
            dh = back[now]
            d_update[now] *= dh
            d_candidate[now] *= dh
            if earlier is None:
                d_keep[now] = 0
                continue
            through = d_candidate[now] @ v_turned
            d_keep[now] *= through
            through *= keep[now]
            through += dh * (1 - update[now])
            through += found[now, : 2 * size] @ w_turned
            back[earlier] += through
        later = slice(order.first, None)
        d_w = hidden[order.before].T @ found[later, : 2 * size]
        d_v = reset[later].T @ d_candidate[later]
        return _gradients(ctx, order.scatter(found), paddle.to_tensor(d_w), paddle.to_tensor(d_v))


class Recurrent(PyLayer):
    """`h = act(x + h W)`"""

    @staticmethod
    def forward(ctx, x, weight, order, names):
        act, _ = _ACTIVATIONS[names[0]]
        hidden, w = order.gather(x), _array(weight)
        for now, earlier in order.steps():
            if earlier is not None:
                hidden[now] += hidden[earlier] @ w
            act(hidden[now])
        _remember(ctx, (x, weight), order, names, w, hidden)
        return order.scatter(hidden)

    @staticmethod
    def backward(ctx, gradient):
        order, names, w, hidden = ctx.kept
        back, slope = order.gather(gradient), _ACTIVATIONS[names[0]][1](hidden)
        turned = np.ascontiguousarray(w.T)
        for now, earlier in reversed(list(order.steps())):
            back[now] *= slope[now]
            if earlier is not None:
                back[earlier] += back[now] @ turned
        d_w = hidden[order.before].T @ back[order.first :]
        return _gradients(ctx, order.scatter(back), paddle.to_tensor(d_w))
