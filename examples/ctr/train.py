"""Learns to predict clicks: `python train.py FOLDER`.

A weight for each of two million ids is in a sparse table on the parameter servers; a row exists only once an id was seen. Trainers do
not wait for each other. Each reads its own share of the files.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import recordio
from model import SAMPLE, auc, true_logits
from paddlecloud import ps

BATCH = 500
REPORT_EVERY = 50
CLOSE_ENOUGH = 0.02


def read(path):
    """All samples of a file."""
    with recordio.reader(str(path)) as file:
        return np.frombuffer(b"".join(file), SAMPLE)


def share(folder, trainer, trainers):
    """The samples of this trainer's files, shuffled."""
    files = sorted(Path(folder).glob("train-*"))[trainer::trainers]
    if not files:
        sys.exit(f"error: no file for trainer {trainer} of {trainers} in {folder}")
    samples = np.concatenate([read(path) for path in files])
    return samples[np.random.default_rng(trainer).permutation(len(samples))]


def predict(server, ids, train):
    logits = server.lookup("weights", ids, train=train).sum(axis=(1, 2)) + server.pull("bias")
    return 1 / (1 + np.exp(-logits))


def train_batch(server, samples):
    ids, clicks = samples["ids"], samples["click"].astype(np.float32)
    chance = predict(server, ids, train=True)
    error = ((chance - clicks) / len(clicks)).astype(np.float32)
    server.push({"bias": error.sum(keepdims=True)})
    server.push_rows("weights", ids, np.repeat(error, ids.shape[1]))
    return float(-np.mean(clicks * np.log(chance) + (1 - clicks) * np.log(1 - chance)))


def main(folder):
    passes = int(os.environ.get("PADDLE_INIT_NUM_PASSES", "1"))
    server = ps.connect(mode="async")
    server.create("bias", np.zeros(1, np.float32), ps.Adagrad(0.1))
    server.table("weights", 1, ps.Adagrad(0.1), init=ps.Zero())
    samples = share(folder, server.trainer, server.trainers)
    batches = len(samples) // BATCH
    seen, seconds, start = 0, 1.0, time.monotonic()
    for step in server.steps(passes * batches):
        number, at = divmod(step, batches)
        loss = train_batch(server, samples[at * BATCH:(at + 1) * BATCH])
        if at % REPORT_EVERY == 0:
            print(f"pass {number} batch {at:3} loss {loss:.6f}", flush=True)
        # Up to the last batch: after it, this trainer waits for the others.
        seen, seconds = seen + BATCH, time.monotonic() - start
    print(f"{seen / seconds:.0f} samples/s", flush=True)

    if server.trainer == 0:
        test = read(Path(folder) / "test")
        found = auc(predict(server, test["ids"], train=False), test["click"])
        best = auc(true_logits(test["ids"]), test["click"])
        print(f"auc {found:.4f}, of the generating model {best:.4f}", flush=True)
        print(f"saved {server.save_pass(passes - 1)}", flush=True)
        if found < best - CLOSE_ENOUGH:
            sys.exit("error: the model is not close enough to the generating one")


if __name__ == "__main__":
    main(sys.argv[1])
