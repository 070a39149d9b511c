"""`paddle train --job=checkgrad`: compares gradients with finite differences of the cost."""

from __future__ import annotations

import numpy as np

from paddlecloud.legacy import log

# The largest relative difference that counts as right. Values are float32.
TOLERANCE = 0.05


def check(machine, costs, feed, epsilon: float) -> float:
    """Moves every parameter along its gradient and compares the change of the cost with what the gradient says.

    The step is chosen so that the cost should change by `epsilon` of its value. Returns the largest relative difference.
    """
    import paddle

    def cost(is_training=True):
        paddle.seed(1)  # the same dropout each time
        values, _ = machine.forward(feed, is_training=is_training)
        total = values[id(costs[0])].data.sum()
        for node in costs[1:]:
            total = total + values[id(node)].data.sum()
        return total

    original = cost()
    original.backward()
    log.line("Trainer.cpp:318", f"original cost={float(original):g}")
    worst = 0.0
    for name in machine.tensors:
        tensor = machine.parameters.tensor(name)
        if tensor.stop_gradient or tensor.grad is None:
            continue
        worst = max(worst, _check_one(name, machine.parameters.array(name), tensor.grad.numpy(), cost, float(original), epsilon))
    machine.parameters.clear_gradients()
    return worst


def _check_one(name, value, gradient, cost, original, epsilon):
    import paddle

    before = value.copy()
    slope = float(np.square(gradient, dtype=np.float64).sum())
    step = (abs(original) or 1.0) * epsilon / slope if slope > 0 else 0.0
    # A long step leaves the neighbourhood in which the gradient holds.
    largest = float(np.abs(gradient).max(initial=0.0)) * step
    step *= min(1.0, 0.01 / largest) if largest else 0.0
    # float32 sums cannot show a change that is smaller than this.
    noise = 4e-6 * abs(original)
    while True:
        found = []
        with paddle.no_grad():
            for way in (step, -step):
                value[...] = before + np.float32(way) * gradient
                found.append(float(cost()))
        value[...] = before
        true_change, change = found[0] - found[1], 2 * step * slope
        off = abs(true_change - change) / max(abs(change), abs(true_change), 1e-30)
        if abs(true_change - change) <= noise:
            off = 0.0
        elif not np.isfinite(off):
            off = np.inf
        # A bend within the step, such as that of a relu, counts less in a shorter one; a wrong gradient stays wrong.
        if off < TOLERANCE or not 100 * noise < abs(change) < np.inf:
            break
        step /= 4
    mark = "  ***" if off >= TOLERANCE else ""
    text = f"{name:20}step={step:<15g}cost1={found[0]:<10g}cost2={found[1]:<10g}true_delta={true_change:<15g}analytic_delta={change:<15g}"
    log.line("Trainer.cpp:360", f"{text}diff={off:g}{mark}")
    return off
