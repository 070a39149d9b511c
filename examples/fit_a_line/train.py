"""Fits a line together with the other trainers, through the parameter servers.

Every trainer has its own share of the data. At each step it pulls the parameters, computes the gradient on a batch and pushes
it; the servers move the parameters against the mean of all gradients. Trainer 0 saves the model after every pass.
"""

import os
import sys

import numpy as np
from model import BATCH, BATCHES, TRUE_BIAS, TRUE_WEIGHTS, batch, loss_and_gradient
from paddlecloud import ps

REPORT_EVERY = 25
CLOSE_ENOUGH = 0.05


def main():
    passes = int(os.environ.get("PADDLE_INIT_NUM_PASSES", "1"))
    server = ps.connect()
    print(f"trainer {server.trainer} of {server.trainers}, {server.servers} parameter servers", flush=True)

    server.create("w", np.zeros(len(TRUE_WEIGHTS), np.float32), ps.SGD(0.1))
    server.create("b", np.zeros(1, np.float32), ps.SGD(0.1))
    values = server.pull()
    for step in server.steps(passes * BATCHES):
        number, at = divmod(step, BATCHES)
        loss, gradient = loss_and_gradient(values, batch(server.trainer, at))
        values = server.push_pull(gradient, out=values)
        if at % REPORT_EVERY == 0:
            print(f"pass {number} batch {at:3} loss {loss:.6f}", flush=True)
        if at + 1 == BATCHES and server.trainer == 0:
            print(f"saved {server.save_pass(number)}", flush=True)

    print("learned ", *(f"{value:7.3f}" for value in [*values["w"], *values["b"]]), flush=True)
    print("the line", *(f"{value:7.3f}" for value in [*TRUE_WEIGHTS, TRUE_BIAS]), flush=True)
    farthest = max(np.abs(values["w"] - TRUE_WEIGHTS).max(), abs(values["b"][0] - TRUE_BIAS))
    if farthest > CLOSE_ENOUGH:
        sys.exit("error: training did not find the line")


if __name__ == "__main__":
    main()
