"""The line to fit: y = x·w + b with weights that are known, so that anyone can see whether training worked."""

import numpy as np

TRUE_WEIGHTS = np.array([2.0, -3.4, 0.7, 1.5], np.float32)
TRUE_BIAS = 4.2

NOISE = 0.01
BATCH = 32
# Batches of a pass, for each trainer.
BATCHES = 150


def batch(trainer, number):
    """A batch of this trainer's share: the same on every run, different from every other trainer's."""
    source = np.random.default_rng([trainer, number])
    x = source.uniform(-1.0, 1.0, (BATCH, len(TRUE_WEIGHTS))).astype(np.float32)
    y = x @ TRUE_WEIGHTS + np.float32(TRUE_BIAS) + source.normal(0.0, NOISE, BATCH).astype(np.float32)
    return x, y


def loss_and_gradient(values, samples):
    """Mean squared error over the batch, and its slope in every parameter."""
    x, y = samples
    error = x @ values["w"] + values["b"] - y
    gradient = {"w": 2.0 * (x.T @ error) / len(y), "b": np.array([2.0 * error.mean()], np.float32)}
    return float(np.mean(error * error)), gradient
