"""Trains a small network of PaddlePaddle 3 without parameter servers: trainers exchange gradients over gloo.

The variables `init_parallel_env` reads are set in every worker.
"""

import sys

import numpy as np
import paddle
import paddle.distributed as dist

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
    dist.init_parallel_env()
    trainer = dist.get_rank()
    paddle.seed(1)
    network = paddle.nn.Sequential(paddle.nn.Linear(1, 32), paddle.nn.Tanh(), paddle.nn.Linear(32, 1))
    model = paddle.DataParallel(network)
    optimizer = paddle.optimizer.Adam(0.02, parameters=model.parameters())
    for at in range(BATCHES):
        x, y = batch(trainer, at)
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if at % REPORT_EVERY == 0:
            print(f"pass 0 batch {at:3} loss {float(loss):.6f}", flush=True)

    x, y = batch(1_000, 0)
    held_out = float(((model(x) - y) ** 2).mean())
    print(f"trainer {trainer} of {dist.get_world_size()}: held-out loss {held_out:.6f}", flush=True)
    if held_out > GOOD_ENOUGH:
        sys.exit("error: training did not find the wave")


if __name__ == "__main__":
    main()
