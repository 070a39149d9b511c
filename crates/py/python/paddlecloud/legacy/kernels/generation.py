"""`beam_search`: generates the likeliest sequences of words, all samples of a batch at once."""

from __future__ import annotations

import numpy as np
import paddle

from paddlecloud.legacy.kernels.base import compute, kernel
from paddlecloud.legacy.kernels.sequences import first_state
from paddlecloud.legacy.values import Value


class _Beams:
    """Unfinished sequences: one row each, those of a sample next to each other."""

    def __init__(self, samples, bos):
        self.owners = np.arange(samples)
        self.scores = np.zeros(samples)
        self.paths = [[] for _ in range(samples)]
        self.words = np.full(samples, bos, np.int64)

    def keep(self, rows, words, scores):
        """Continues with the sequences of `rows`, each followed by its word."""
        self.owners = self.owners[rows]
        self.paths = [[*self.paths[row], int(word)] for row, word in zip(rows, words)]
        self.words = np.asarray(words, np.int64)
        self.scores = np.asarray(scores)


@kernel("beam_search")
def _beam_search(node, inputs, run):
    conf = node.conf
    known = {id(origin): value for origin, value in zip(node.inputs, inputs)}
    fixed = [(inner, known[id(origin)]) for inner, origin in conf["statics"]]
    samples = _count(fixed[0][1])
    beams, finished = _Beams(samples, conf["bos"]), [[] for _ in range(samples)]
    carried = {
        id(inner): known[id(boot)].data if boot is not None else first_state(inner, samples)
        for inner, _, boot in conf["memories"]
    }
    laid_out = None
    for _ in range(conf["longest"]):
        if laid_out is None or not np.array_equal(laid_out[0], beams.owners):
            laid_out = beams.owners, {id(inner): _rows_for(value, beams.owners) for inner, value in fixed}
        values = {**laid_out[1], **{key: Value(data) for key, data in carried.items()}}
        values[id(conf["word"])] = Value(paddle.to_tensor(beams.words))
        for inner in conf["body"]:
            if id(inner) not in values:
                values[id(inner)] = compute(inner, [values[id(parent)] for parent in inner.inputs], run)
        rows = _advance(beams, finished, _log_chances(values[id(conf["chances"])]), conf)
        if not len(rows):
            break
        taken = paddle.to_tensor(rows)
        carried = {id(inner): paddle.gather(values[id(source)].data, taken) for inner, source, _ in conf["memories"]}
    for owner, score, path in zip(beams.owners, beams.scores, beams.paths):
        finished[owner].append((float(score), path))
    return _results(finished, conf["results"])


def _count(value):
    return len(value.starts) - 1 if value.starts is not None else int(value.data.shape[0])


def _rows_for(value, owners):
    """What a sample's beams see of a static input: the same row, or the same sequence, each."""
    if value.starts is None:
        return Value(paddle.gather(value.data, paddle.to_tensor(owners)))
    lengths = np.diff(value.starts)[owners]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.arange(starts[-1]) - np.repeat(starts[:-1] - value.starts[owners], lengths)
    return Value(paddle.gather(value.data, paddle.to_tensor(rows)), starts)


def _log_chances(value):
    if value.logits is not None:
        return paddle.nn.functional.log_softmax(value.logits, axis=-1).numpy()
    return np.log(np.maximum(value.data.numpy(), 1e-37))


def _advance(beams, finished, chances, conf):
    """Adds a word to the best sequences of every sample; returns the rows they come from."""
    width, kept = conf["beam"], []
    totals = beams.scores[:, None] + chances
    for sample in np.unique(beams.owners):
        rows = np.flatnonzero(beams.owners == sample)
        mine = totals[rows].reshape(-1)
        count = min(width, mine.size)
        best = np.argpartition(-mine, count - 1)[:count]
        best = best[np.argsort(-mine[best], kind="stable")]
        going = []
        for place in best:
            row, word = rows[place // chances.shape[1]], int(place % chances.shape[1])
            if word == conf["eos"]:
                finished[sample].append((float(mine[place]), [*beams.paths[row], word]))
            else:
                going.append((row, word, mine[place]))
        if not _is_done(finished[sample], going, conf["results"]):
            kept += going
    rows, words, scores = (np.array(column) for column in zip(*kept)) if kept else (np.zeros(0, np.int64),) * 3
    beams.keep(rows, words, scores)
    return rows


def _is_done(finished, going, results):
    """A sequence only gets less likely by going on, so the best finished ones may be final."""
    if not going:
        return True
    scores = sorted((score for score, _ in finished), reverse=True)
    return len(scores) >= results and scores[results - 1] >= max(score for _, _, score in going)


def _results(finished, results):
    """`ids` as in 2017: for every result its length, its words and -1; `prob` has a row of logarithms per sample."""
    chosen = [sorted(each, key=lambda pair: -pair[0])[:results] for each in finished]
    chosen = [each + [(-np.inf, [])] * (results - len(each)) for each in chosen]
    ids = [number for each in chosen for _, path in each for number in (len(path), *path, -1)]
    scores = np.array([[score for score, _ in each] for each in chosen], np.float32)
    best = [each[0][1] or [0] for each in chosen]
    starts = np.concatenate([[0], np.cumsum([len(path) for path in best])])
    data = paddle.to_tensor(np.concatenate([np.asarray(path, np.int64) for path in best]))
    return Value(data, starts, extra={"ids": np.array(ids, np.int64), "prob": scores, "sentences": chosen})
