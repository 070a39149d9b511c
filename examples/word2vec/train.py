"""Learns word embeddings by predicting each word from the three before it.

The embeddings are rows of a sparse table: a step looks up and changes only the words of its batch. The output layer is dense. Trainers work
synchronously, each on a text of its own.
"""

import os
import sys

import numpy as np
from paddlecloud import ps
from text import CONTEXT, WORDS, samples, text, unigram_loss

SIZE = 16
BATCH = 256
LENGTH = 100_000
REPORT_EVERY = 50
BETTER_BY = 0.20


def forward(rows, output, bias):
    hidden = rows.reshape(len(rows), CONTEXT * SIZE)
    logits = hidden @ output + bias
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    return hidden, chances


def train_batch(server, before, word):
    rows = server.lookup("embedding", before)
    values = server.pull()
    hidden, chances = forward(rows, values["output"], values["bias"])
    loss = float(-np.log(chances[np.arange(len(word)), word]).mean())
    chances[np.arange(len(word)), word] -= 1
    chances /= len(word)
    server.push({"output": hidden.T @ chances, "bias": chances.sum(axis=0)})
    server.push_rows("embedding", before, chances @ values["output"].T)
    return loss


def held_out_loss(server, before, word):
    values = server.pull()
    losses = []
    for at in range(0, len(word), 1_000):
        rows = server.lookup("embedding", before[at : at + 1_000], train=False)
        _, chances = forward(rows, values["output"], values["bias"])
        losses.append(-np.log(chances[np.arange(len(chances)), word[at : at + 1_000]]))
    return float(np.concatenate(losses).mean())


def main():
    passes = int(os.environ.get("PADDLE_INIT_NUM_PASSES", "1"))
    server = ps.connect()
    start = np.random.default_rng(1).normal(0, 0.1, (CONTEXT * SIZE, WORDS)).astype(np.float32)
    server.create("output", start, ps.Adagrad(0.3))
    server.create("bias", np.zeros(WORDS, np.float32), ps.Adagrad(0.3))
    server.table("embedding", SIZE, ps.Adagrad(0.5), init=ps.Uniform(-0.1, 0.1), seed=5)

    words = text(LENGTH, seed=server.trainer)
    before, word = samples(words)
    batches = len(word) // BATCH
    for step in server.steps(passes * batches):
        number, at = divmod(step, batches)
        batch = slice(at * BATCH, (at + 1) * BATCH)
        loss = train_batch(server, before[batch], word[batch])
        if at % REPORT_EVERY == 0:
            print(f"pass {number} batch {at:3} loss {loss:.6f}", flush=True)

    if server.trainer == 0:
        test = text(10_000, seed=1_000)
        guess, found = unigram_loss(words, test), held_out_loss(server, *samples(test))
        print(f"held-out loss {found:.4f}, by frequency alone {guess:.4f}", flush=True)
        print(f"saved {server.save_pass(passes - 1)}", flush=True)
        if found > guess * (1 - BETTER_BY):
            sys.exit("error: the embeddings are not good enough")


if __name__ == "__main__":
    main()
