"""Trains a small network of PaddlePaddle 3 with parameter servers; two lines make an ordinary script distributed."""

import os
import sys

import numpy as np
import paddle
from paddlecloud.ps.paddle import DistributedOptimizer

BATCH = 64
BATCHES = 200
REPORT_EVERY = 25
GOOD_ENOUGH = 0.02


def batch(trainer, number):
    """A batch of this trainer's share of points on a wave."""
    source = np.random.default_rng([trainer, number])
    x = source.uniform(-2.0, 2.0, (BATCH, 1)).astype(np.float32)
    return paddle.to_tensor(x), paddle.to_tensor(np.sin(2 * x))


def main():
    passes = int(os.environ.get("PADDLE_INIT_NUM_PASSES", "1"))
    paddle.seed(1)
    model = paddle.nn.Sequential(paddle.nn.Linear(1, 32), paddle.nn.Tanh(), paddle.nn.Linear(32, 1))
    optimizer = paddle.optimizer.Adam(0.02, parameters=model.parameters())
    optimizer = DistributedOptimizer(optimizer)

    server = optimizer.session
    for step in server.steps(passes * BATCHES):
        number, at = divmod(step, BATCHES)
        x, y = batch(server.trainer, step)
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if at % REPORT_EVERY == 0:
            print(f"pass {number} batch {at:3} loss {float(loss):.6f}", flush=True)

    x, y = batch(1_000, 0)
    held_out = float(((model(x) - y) ** 2).mean())
    print(f"held-out loss {held_out:.6f}", flush=True)
    if server.trainer == 0:
        print(f"saved {server.save_pass(passes - 1)}", flush=True)
    if held_out > GOOD_ENOUGH:
        sys.exit("error: training did not find the wave")


if __name__ == "__main__":
    main()
