"""A language that anyone can have: words of twenty classes, where the class of a word depends on the class before."""

import numpy as np

WORDS = 1_000
CLASSES = 20
CONTEXT = 3


def _language():
    source = np.random.default_rng(7)
    frequency = 1.0 / np.arange(1, WORDS + 1) ** 0.8
    kind = source.integers(0, CLASSES, WORDS)
    # After a class come mostly two others.
    follows = np.full((CLASSES, CLASSES), 0.06 / CLASSES)
    for before in range(CLASSES):
        for after in source.choice(CLASSES, 2, replace=False):
            follows[before, after] += 0.47
    return frequency, kind, follows


FREQUENCY, KIND, FOLLOWS = _language()


def text(length, seed):
    """A text as word ids, the same for the same seed."""
    source = np.random.default_rng(seed)
    words_of = [np.flatnonzero(KIND == number) for number in range(CLASSES)]
    chances = [FREQUENCY[words] / FREQUENCY[words].sum() for words in words_of]
    kinds = np.empty(length, np.int64)
    now = 0
    steps, turns = FOLLOWS.cumsum(axis=1), source.random(length)
    for at in range(length):
        now = min(int(np.searchsorted(steps[now], turns[at])), CLASSES - 1)
        kinds[at] = now
    written = np.empty(length, np.int64)
    for number in range(CLASSES):
        here = kinds == number
        written[here] = source.choice(words_of[number], here.sum(), p=chances[number])
    return written


def samples(words):
    """The words before each word, and the word."""
    before = np.stack([words[at : len(words) - CONTEXT + at] for at in range(CONTEXT)], axis=1)
    return before, words[CONTEXT:]


def unigram_loss(train, test):
    """The loss of guessing by frequency alone."""
    counts = np.bincount(train, minlength=WORDS) + 1.0
    return float(-np.log(counts / counts.sum())[test].mean())
