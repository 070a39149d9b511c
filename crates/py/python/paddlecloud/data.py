"""RecordIO files as a data set for training: divided among trainers, shuffled, resumable at any record.

`paddlecloud.torch` has the same for a torch `DataLoader`.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, overload

from paddlecloud._foreign import warn_about_foreign_recordio
from paddlecloud._native import LostRange, reader
from paddlecloud._order import Consumer, EpochOrder, Mixer

__all__ = ["RecordDataset"]

T = TypeVar("T")

_STATE_VERSION = 1
# Below this a chunk is not worth a read of its own.
_PIECE_BYTES = 256 << 10
_LOST = object()

# Where a trainer learns its number and how many there are, the most particular first.
_ENVIRONMENT = (
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    ("RANK", "WORLD_SIZE"),
    ("PADDLE_INIT_TRAINER_ID", "PADDLE_INIT_NUM_GRADIENT_SERVERS"),
    ("TRAINER_ID", "TRAINERS"),
)

warn_about_foreign_recordio()


class RecordDataset(Generic[T]):
    """The records of some files; every record goes to exactly one trainer and one of its workers.

    files: what `recordio.reader` takes: a name, a pattern, several with commas, or a list.
    decode: converts a record to a sample; without it a sample is `bytes`.
    shuffle: reads chunks in random order, a different one in each epoch, and shuffles records in a buffer of `buffer_size`.
    rank, world_size: this trainer's index and the number of trainers; from the environment unless given.
    equal_shares: all trainers get the same number of records; the few that are left over are not read.
    policy: "strict" stops at damage; "skip" skips it, and `damage` lists what was lost.

    After a full pass the next epoch begins. Workers of a torch DataLoader are copies: call `set_epoch` before each
    epoch there. Only they know their positions: `torchdata`'s StatefulDataLoader asks them, and its state resumes in
    the middle of an epoch with the same number of workers.
    """

    @overload
    def __init__(
        self: RecordDataset[bytes],
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        decode: None = None,
        shuffle: bool = False,
        buffer_size: int = 4096,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        equal_shares: bool = False,
        policy: str = "strict",
    ) -> None: ...

    @overload
    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        decode: Callable[[bytes], T],
        shuffle: bool = False,
        buffer_size: int = 4096,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        equal_shares: bool = False,
        policy: str = "strict",
    ) -> None: ...

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        decode: Callable[[bytes], Any] | None = None,
        shuffle: bool = False,
        buffer_size: int = 4096,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        equal_shares: bool = False,
        policy: str = "strict",
    ) -> None:
        if buffer_size < 1:
            raise ValueError(f"buffer_size must be at least 1, not {buffer_size}")
        self._reader = reader(files, policy=policy)  # type: ignore[arg-type]
        self._decode = decode
        self._shuffle = shuffle
        self._buffer_size = buffer_size
        self._seed = seed
        self._rank, self._world_size = _rank_and_world(rank, world_size)
        self._equal_shares = equal_shares
        self._epoch = 0
        self._position = 0
        self._resume = False
        self._is_finished = False

    def __len__(self) -> int:
        """How many records this trainer gets, in all its workers."""
        whole = Consumer(self._rank, self._world_size)
        return len(whole.share(len(self._reader), self._equal_shares))

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, and so the order, of the next pass. A position to resume at within that epoch is kept."""
        if epoch != self.epoch:
            self._epoch, self._position, self._resume, self._is_finished = epoch, 0, False, False

    @property
    def epoch(self) -> int:
        return self._epoch + self._is_finished

    @property
    def damage(self) -> list[LostRange]:
        """What was skipped so far with policy="skip"."""
        return self._reader.damage

    def __iter__(self) -> Iterator[T]:
        # At once, not with the first record: a loader asks for the state in between.
        if not self._resume:
            self._epoch, self._position = self.epoch, 0
        self._resume = self._is_finished = False
        return self._samples(self._consumer())

    def _samples(self, consumer: Consumer) -> Iterator[T]:
        records = self._mixed(consumer) if self._shuffle else self._plain(consumer)
        for record in records:
            self._position += 1
            if record is not _LOST:
                yield record if self._decode is None else self._decode(record)
        self._is_finished = True

    def state_dict(self) -> dict[str, Any]:
        """The reader's position: after `load_state_dict` the next record is the one that would have come next.

        After a full pass that is the first record of the next epoch. A loader's worker that has finished stays at the end,
        because the loader or another worker may not have finished.
        """
        place = (self._epoch, self._position)
        if self._is_finished and _worker_info() is None:
            place = (self._epoch + 1, 0)
        return {"epoch": place[0], "position": place[1], "made_for": self._made_for(self._consumer())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        made_for, here = state["made_for"], self._made_for(self._consumer())
        differing = [key for key in here if made_for.get(key) != here[key]]
        if differing:
            words = "; ".join(f"{key} was {made_for.get(key)!r}, now {here[key]!r}" for key in differing)
            raise ValueError(f"cannot resume, the order would differ: {words}")
        self._epoch, self._position, self._resume = state["epoch"], state["position"], True
        self._is_finished = False

    def _made_for(self, consumer: Consumer) -> dict[str, Any]:
        """What the order depends on."""
        return {
            "version": _STATE_VERSION,
            "records": len(self._reader),
            "seed": self._seed,
            "shuffle": self._shuffle,
            "buffer_size": self._buffer_size if self._shuffle else None,
            "chunks": self._chunks() if self._shuffle else None,
            "equal_shares": self._equal_shares,
            "rank": consumer.rank,
            "world_size": consumer.world_size,
            "worker": consumer.worker,
            "workers": consumer.workers,
        }

    def _chunks(self) -> str:
        """Differs if the same records are in other chunks: shuffled, they have another order."""
        starts = self._reader.piece_starts(_PIECE_BYTES)
        return hashlib.blake2b(starts.tobytes(), digest_size=8).hexdigest()

    def _consumer(self) -> Consumer:
        worker, workers = _worker()
        return Consumer(self._rank, self._world_size, worker, workers)

    def _order(self, consumer: Consumer) -> tuple[EpochOrder, range]:
        starts = self._reader.piece_starts(_PIECE_BYTES)
        share = consumer.share(int(starts[-1]), self._equal_shares)
        return EpochOrder(starts, self._seed, self._epoch, self._shuffle), share

    def _plain(self, consumer: Consumer) -> Iterator[Any]:
        order, share = self._order(consumer)
        return self._read(order, share, self._position)

    def _mixed(self, consumer: Consumer) -> Iterator[Any]:
        order, share = self._order(consumer)
        mixer = self._new_mixer(consumer)
        next_place = _replay(mixer, len(share), self._position)
        if self._position:
            mixer.held = self._look_up(order, share, mixer.held)
        for record in self._read(order, share, next_place):
            if mixer.is_filling():
                mixer.fill(record)
            else:
                yield mixer.exchange(record)
        while mixer.held:
            yield mixer.drain()

    def _new_mixer(self, consumer: Consumer) -> Mixer:
        number = consumer.rank * consumer.workers + consumer.worker
        return Mixer(self._buffer_size, self._seed, self._epoch, number)

    def _read(self, order: EpochOrder, share: range, skip: int) -> Iterator[Any]:
        """The records of a share in order, without the first `skip`; what is lost keeps its place."""
        passed = 0
        for start, stop in order.spans(share):
            if passed + stop - start > skip:
                yield from self._span(start, stop)[max(skip - passed, 0) :]
            passed += stop - start

    def _look_up(self, order: EpochOrder, share: range, places: list[int]) -> list[Any]:
        """The records at these places of the share."""
        wanted = sorted(range(len(places)), key=places.__getitem__)
        found: list[Any] = [None] * len(places)
        passed = taken = 0
        for start, stop in order.spans(share):
            end = passed + stop - start
            if taken < len(wanted) and places[wanted[taken]] < end:
                records = self._span(start, stop)
                while taken < len(wanted) and places[wanted[taken]] < end:
                    found[wanted[taken]] = records[places[wanted[taken]] - passed]
                    taken += 1
            passed = end
        return found

    def _span(self, start: int, stop: int) -> list[Any]:
        records: list[Any] = self._reader.read_range(start, stop)
        return records + [_LOST] * (stop - start - len(records))


def _replay(mixer: Mixer, size: int, steps: int) -> int:
    """Runs the mixer on places for `steps` steps and returns the place that comes in next."""
    place = 0
    if steps == 0:
        return place
    while place < size and mixer.is_filling():
        mixer.fill(place)
        place += 1
    for _ in range(steps):
        if place < size:
            mixer.exchange(place)
            place += 1
        else:
            mixer.drain()
    return place


def _rank_and_world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise TypeError("`rank` and `world_size` must be set together")
    if rank is None or world_size is None:
        rank, world_size = _surroundings()
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of {world_size}, counted from 0")
    return rank, world_size


def _surroundings() -> tuple[int, int]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for rank, world_size in _ENVIRONMENT:
        if os.environ.get(rank) and os.environ.get(world_size):
            return int(os.environ[rank]), int(os.environ[world_size])
    return 0, 1


def _worker() -> tuple[int, int]:
    """Which of how many DataLoader workers this process is."""
    info = _worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _worker_info() -> Any:
    """What torch says about this process, if it is a DataLoader's worker."""
    torch_data = sys.modules.get("torch.utils.data")
    return torch_data.get_worker_info() if torch_data is not None else None
