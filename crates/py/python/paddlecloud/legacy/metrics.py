"""What evaluators count, over a batch or over a pass."""

from __future__ import annotations

import numpy as np


class Metric:
    """Counts batches; `read` gives {name: number}."""

    def __init__(self, evaluator):
        self.evaluator = evaluator
        self.conf = evaluator.conf
        self.clear()

    def clear(self):
        self.total = 0.0
        self.count = 0.0

    def add(self, values):
        raise NotImplementedError

    def absorb(self, other):
        """Counts what another one of its kind has counted."""
        self.total += other.total
        self.count += other.count

    def read(self):
        return {self.evaluator.name: float(self.total / self.count) if self.count else 0.0}

    def _weights(self, values, rows):
        if self.conf.get("weighted"):
            return values[-1].data.numpy().reshape(-1)
        return np.ones(rows, np.float32)


class ClassificationError(Metric):
    def add(self, values):
        score, label = values[0].ranking, values[1].data.numpy().reshape(-1)
        weights = self._weights(values, len(label))
        if score.shape[1] == 1:
            wrong = (values[0].data.numpy()[:, 0] > self.conf["threshold"]) != (label > 0)
        elif self.conf["top_k"] == 1:
            wrong = score.argmax(axis=1) != label
        else:
            best = np.argpartition(-score, self.conf["top_k"] - 1, axis=1)[:, : self.conf["top_k"]]
            wrong = ~(best == label[:, None]).any(axis=1)
        self.total += float((wrong * weights).sum())
        self.count += float(weights.sum())


class Auc(Metric):
    """Over histograms of the score, as in 2017, with finer bins."""

    _BINS = 1 << 16

    def clear(self):
        self.good = np.zeros(self._BINS)
        self.bad = np.zeros(self._BINS)

    def add(self, values):
        score, label = values[0].data.numpy()[:, -1], values[1].data.numpy().reshape(-1)
        weights = self._weights(values, len(label))
        bins = np.clip((score * self._BINS).astype(np.int64), 0, self._BINS - 1)
        np.add.at(self.good, bins, weights * (label > 0))
        np.add.at(self.bad, bins, weights * (label <= 0))

    def absorb(self, other):
        self.good += other.good
        self.bad += other.bad

    def read(self):
        below = np.cumsum(self.bad) - self.bad
        pairs = self.good.sum() * self.bad.sum()
        area = (self.good * (below + self.bad / 2)).sum() / pairs if pairs else 0.0
        return {self.evaluator.name: float(area)}


class Sum(Metric):
    def add(self, values):
        data = values[0].data.numpy()
        data = data.reshape(len(data), -1).sum(axis=1)
        self.total += float((data * self._weights(values, len(data))).sum())
        self.count += len(data)


class ColumnSum(Metric):
    def add(self, values):
        data = values[0].data.numpy()[:, -1]
        weights = self._weights(values, len(data))
        self.total += float((data * weights).sum())
        self.count += float(weights.sum())


class PrecisionRecall(Metric):
    def clear(self):
        self.table = {}

    def add(self, values):
        score, label = values[0].data.numpy(), values[1].data.numpy().reshape(-1)
        weights = self._weights(values, len(label))
        guess = (score[:, 0] > 0.5).astype(np.int64) if score.shape[1] == 1 else score.argmax(axis=1)
        for found, wanted, weight in zip(guess.tolist(), label.tolist(), weights.tolist()):
            row = self.table.setdefault(found, [0.0, 0.0, 0.0])
            other = self.table.setdefault(wanted, [0.0, 0.0, 0.0])
            if found == wanted:
                row[0] += weight
            else:
                row[1] += weight
                other[2] += weight

    def absorb(self, other):
        for kind, counts in other.table.items():
            row = self.table.get(kind, [0.0, 0.0, 0.0])
            self.table[kind] = [mine + count for mine, count in zip(row, counts)]

    def read(self):
        positive = self.conf["positive"]
        rows = self.table.values() if positive is None else [self.table.get(positive, [0.0, 0.0, 0.0])]
        precision = float(np.mean([_share(good, good + wrong) for good, wrong, _ in rows])) if rows else 0.0
        recall = float(np.mean([_share(good, good + missed) for good, _, missed in rows])) if rows else 0.0
        name = self.evaluator.name
        return {f"{name}.precision": precision, f"{name}.recall": recall, f"{name}.F1-score": _f1(precision, recall)}


def _share(part, whole):
    return part / whole if whole else 0.0


def _f1(precision, recall):
    return _share(2 * precision * recall, precision + recall)


class Chunk(Metric):
    """Chunks are right when type and both ends are."""

    def clear(self):
        self.right = self.guessed = self.wanted = 0

    def add(self, values):
        guess, label = (value.data.numpy().reshape(-1) for value in values)
        if values[0].extra and "ids" in values[0].extra:
            guess = values[0].extra["ids"]
        starts = values[1].starts
        for a, b in zip(starts, starts[1:]):
            found, wanted = self._chunks(guess[a:b]), self._chunks(label[a:b])
            self.right += len(found & wanted)
            self.guessed += len(found)
            self.wanted += len(wanted)

    def absorb(self, other):
        self.right += other.right
        self.guessed += other.guessed
        self.wanted += other.wanted

    def read(self):
        precision, recall = _share(self.right, self.guessed), _share(self.right, self.wanted)
        name = self.evaluator.name
        return {f"{name}.precision": precision, f"{name}.recall": recall, f"{name}.F1-score": _f1(precision, recall)}

    def _chunks(self, tags):
        scheme = self.conf["scheme"]
        letters = {"plain": "I", "IOB": "BI", "IOE": "IE", "IOBES": "BIES"}[scheme]
        found, start, kind, ended = set(), None, None, False
        for at, tag in enumerate([*tags.tolist(), -1]):
            inside = 0 <= tag < self.conf["types"] * len(letters)
            letter, now = (letters[tag % len(letters)], tag // len(letters)) if inside else ("O", None)
            if start is not None and (now != kind or letter in "BS" or ended):
                found.add((start, at, kind))
                start = None
            if inside and start is None:
                start, kind = at, now
            ended = inside and letter in "ES"
        return {chunk for chunk in found if chunk[2] not in self.conf["excluded"]}


KINDS = {
    "classification_error": ClassificationError,
    "auc": Auc,
    "sum": Sum,
    "column_sum": ColumnSum,
    "precision_recall": PrecisionRecall,
    "chunk": Chunk,
}


class Metrics:
    """All metrics of a network; what 2017 called an evaluator."""

    def __init__(self, evaluators):
        self._metrics = [KINDS[each.kind](each) for each in evaluators]

    def __bool__(self):
        return bool(self._metrics)

    def clear(self):
        for metric in self._metrics:
            metric.clear()

    def add(self, values):
        for metric in self._metrics:
            metric.add([values[id(node)] for node in metric.evaluator.inputs])

    def absorb(self, other):
        for metric, its in zip(self._metrics, other._metrics):
            metric.absorb(its)

    def read(self):
        found = {}
        for metric in self._metrics:
            found.update(metric.read())
        return found
