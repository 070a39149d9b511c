"""The formulas of 2017's documentation in plain numpy, one sequence or sample at a time. Nothing here knows the code under test."""

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def lstm(x, weight, bias):
    """x: [T, 4 size] as candidate, input, forget, output; bias: 4 size of offsets, then three peepholes."""
    size = weight.shape[0]
    weight = weight.reshape(size, 4 * size)
    offset, peep_in, peep_forget, peep_out = np.split(bias.reshape(-1), [4 * size, 5 * size, 6 * size])
    h, c, out = np.zeros(size), np.zeros(size), []
    for row in x:
        a, i, f, o = np.split(row + offset + h @ weight, 4)
        i = sigmoid(i + peep_in * c)
        f = sigmoid(f + peep_forget * c)
        c = f * c + i * np.tanh(a)
        o = sigmoid(o + peep_out * c)
        h = o * np.tanh(c)
        out.append(h)
    return np.array(out)


def gru(x, weight, bias):
    """x: [T, 3 size] as update, reset, candidate; the first 2 size² weights are for the gates, the last size² for the candidate."""
    size = weight.shape[0]
    flat = weight.reshape(-1)
    gates, own = flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)
    h, out = np.zeros(size), []
    for row in x + bias.reshape(-1):
        u = sigmoid(row[:size] + h @ gates[:, :size])
        r = sigmoid(row[size : 2 * size] + h @ gates[:, size:])
        c = np.tanh(row[2 * size :] + (r * h) @ own)
        h = (1 - u) * h + u * c
        out.append(h)
    return np.array(out)


def crf_cost(x, tags, weight):
    """-log P(tags | x), by going through every possible tag sequence."""
    import itertools

    start, end, move = weight[0], weight[1], weight[2:]

    def score(path):
        total = start[path[0]] + end[path[-1]] + sum(x[t, k] for t, k in enumerate(path))
        return total + sum(move[a, b] for a, b in zip(path, path[1:]))

    scores = np.array([score(path) for path in itertools.product(range(x.shape[1]), repeat=len(x))])
    return np.log(np.exp(scores - scores.max()).sum()) + scores.max() - score(tags)


def pool_up(image, size, stride, best):
    """[rows, columns], windows that begin inside the image."""
    rows = -(-(image.shape[0] - size) // stride) + 1
    columns = -(-(image.shape[1] - size) // stride) + 1
    return np.array(
        [
            [best(image[r * stride : r * stride + size, c * stride : c * stride + size]) for c in range(columns)]
            for r in range(rows)
        ]
    )


def conv(image, filters, offset, padding):
    """[channels, rows, columns] with filters [out, channels, k, k]."""
    image = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    k = filters.shape[-1]
    rows, columns = image.shape[1] - k + 1, image.shape[2] - k + 1
    out = np.zeros((len(filters), rows, columns))
    for r in range(rows):
        for c in range(columns):
            out[:, r, c] = (filters * image[None, :, r : r + k, c : c + k]).sum(axis=(1, 2, 3)) + offset
    return out
