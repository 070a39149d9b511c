"""The order in which the records of an epoch are read, and which consumer reads each.

Everything follows from the seed, the epoch's number and the sizes of the pieces, so all trainers agree without
talking, and a place in the order can be found again. Nothing is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_PICKS_AT_ONCE = 4096


@dataclass(frozen=True)
class Consumer:
    """Who reads: one of the workers of one of the trainers."""

    rank: int
    world_size: int
    worker: int = 0
    workers: int = 1

    def share(self, records: int, equal: bool) -> range:
        """This consumer's places in the order. Shares differ by one at most, or are equal and drop the rest."""
        if equal:
            each = records // self.world_size
            mine = range(self.rank * each, (self.rank + 1) * each)
        else:
            mine = _part(range(records), self.rank, self.world_size)
        return _part(mine, self.worker, self.workers)


def _part(whole: range, number: int, count: int) -> range:
    size = len(whole)
    return range(whole.start + size * number // count, whole.start + size * (number + 1) // count)


class EpochOrder:
    """All records of an epoch: pieces in their own or in random order, each read from its start."""

    def __init__(self, piece_starts: npt.NDArray[np.int64], seed: int, epoch: int, shuffle: bool) -> None:
        sizes = np.diff(piece_starts)
        pieces = _random(seed, epoch).permutation(len(sizes)) if shuffle else np.arange(len(sizes))
        self._starts = piece_starts[pieces]
        self._ends = np.cumsum(sizes[pieces])

    def spans(self, places: range) -> Iterator[tuple[int, int]]:
        """The records at `places` as spans of record numbers, none larger than a piece."""
        place = places.start
        piece = int(np.searchsorted(self._ends, place, side="right"))
        while place < places.stop:
            end = int(self._ends[piece])
            before = int(self._ends[piece - 1]) if piece else 0
            stop = min(end, places.stop)
            start = int(self._starts[piece])
            yield start + place - before, start + stop - before
            place, piece = stop, piece + 1


class Mixer:
    """A shuffle buffer: what comes in takes the place of what goes out, chosen at random.

    Choices do not depend on the values: run on places instead of records, it shows which records the buffer holds at any step.
    """

    def __init__(self, size: int, seed: int, epoch: int, consumer: int) -> None:
        self._size = size
        self._random = _random(seed, epoch, consumer + 1)
        self._picks: list[int] = []
        self.held: list = []

    def is_filling(self) -> bool:
        return len(self.held) < self._size

    def fill(self, value: object) -> None:
        self.held.append(value)

    def exchange(self, value: object) -> object:
        """Takes one in and gives one out."""
        slot = self._pick()
        out, self.held[slot] = self.held[slot], value
        return out

    def drain(self) -> object:
        """Returns one when the input has ended."""
        slot = self._pick()
        last = self.held.pop()
        if slot == len(self.held):
            return last
        out, self.held[slot] = self.held[slot], last
        return out

    def _pick(self) -> int:
        if not self._picks:
            self._picks = self._random.randint(0, 1 << 31, size=_PICKS_AT_ONCE).tolist()
        return self._picks.pop() % len(self.held)


def _random(*key: int) -> np.random.RandomState:
    """The generator numpy has promised never to change: trainers may run different versions."""
    words = [word for number in key for word in (number & 0xFFFFFFFF, (number >> 32) & 0xFFFFFFFF)]
    return np.random.RandomState(words)
