"""The line to fit: y = w·x + b with weights that are known, so that anyone can see whether training worked."""

import random

TRUE_WEIGHTS = [2.0, -3.4, 0.7, 1.5]
TRUE_BIAS = 4.2

# What is learned: the weights, then the bias.
TRUE = TRUE_WEIGHTS + [TRUE_BIAS]
INITIAL = [0.0] * len(TRUE)

LEARNING_RATE = 0.1
NOISE = 0.01
SAMPLES_PER_TRAINER = 512
BATCH = 32


def samples(trainer):
    """This trainer's own share of the data: the same on every run, different from every other trainer's."""
    source = random.Random(1000 + trainer)
    share = []
    for _ in range(SAMPLES_PER_TRAINER):
        x = [source.uniform(-1.0, 1.0) for _ in TRUE_WEIGHTS]
        y = sum(w * v for w, v in zip(TRUE_WEIGHTS, x)) + TRUE_BIAS + source.gauss(0.0, NOISE)
        share.append((x, y))
    return share


def loss_and_gradient(parameters, batch):
    """Mean squared error over the batch, and its slope in every parameter."""
    loss = 0.0
    gradient = [0.0] * len(parameters)
    for x, y in batch:
        inputs = x + [1.0]
        error = sum(p * v for p, v in zip(parameters, inputs)) - y
        loss += error * error
        for i, v in enumerate(inputs):
            gradient[i] += 2.0 * error * v
    return loss / len(batch), [g / len(batch) for g in gradient]


def farthest_from_truth(parameters):
    return max(abs(p - t) for p, t in zip(parameters, TRUE))
