"""How fast Python gets records, beside the formats people use today.

    cargo xtask bench recordio --python [SIZE…]    # builds for speed, installs the peers, runs this

Figures are MB per second of processor time, all threads counted: they hardly depend on what else the machine does.
All contenders take turns, round after round, and the median counts. Files are in the page cache, records half
compressible; every run counts records and bytes. Like is compared with like: the same compressor and the same kind
of result, a `bytes` object for each record or places in one buffer. Of a peer's several ways the fastest counts.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow
import pyarrow.parquet as parquet
import recordio
import tfrecord
from array_record.python import array_record_module as array_record

TOTAL_BYTES = 48 << 20
ROUNDS = 5
RANDOM_BATCH = 1000
BATCH_BYTES = 1 << 20
SIZES = [100, 1024, 102400]


class Goal(NamedTuple):
    """What must be reached: our way, the peer's ways, and the factor over the best of them for each size."""

    work: str
    ours: str
    peers: list[str]
    factors: dict[int, float]


GOALS = [
    Goal("one by one, none", "recordio none, one by one", ["array_record"], {100: 2, 1024: 2}),
    Goal(
        "`read_batch` to a list, none",
        "recordio none, lists",
        ["parquet none, batches, lists", "parquet none, whole, lists"],
        {100: 1, 1024: 1, 102400: 0.9},
    ),
    Goal(
        "`read_batch` to a list, snappy",
        "recordio snappy, lists",
        ["parquet snappy, batches, lists", "parquet snappy, whole, lists"],
        {100: 1, 1024: 1, 102400: 1},
    ),
    Goal(
        "buffer and offsets, none",
        "recordio none, buffer",
        ["parquet none, batches, columns", "parquet none, whole, columns"],
        {100: 1, 1024: 1, 102400: 1},
    ),
    Goal("at random, 1,000 at a time", "recordio none, at random", ["array_record, at random"], {1024: 2}),
]


def main() -> None:
    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    sizes = [int(argument) for argument in sys.argv[1:]] or SIZES
    found = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            found[size] = Bench(folder, size).run()
    print_goals(found)


class Bench:
    """The contenders for one size of records."""

    def __init__(self, folder: str, size: int) -> None:
        self.folder = folder
        self.size = size
        self.records = make_records(size)
        self.bytes = sum(map(len, self.records))
        self.batch = max(1, BATCH_BYTES // size)
        self.contenders: dict[str, Callable[[], float]] = {}

    def run(self) -> dict[str, float]:
        for prepare in (self.recordio, self.parquet, self.array_record, self.tfrecord, self.at_random):
            prepare()
        rounds: dict[str, list[float]] = {name: [] for name in self.contenders}
        for _ in range(ROUNDS):
            for name, measure in self.contenders.items():
                rounds[name].append(measure())
        medians = {name: statistics.median(figures) for name, figures in rounds.items()}
        print(f"\n{len(self.records)} records of {self.size} bytes; medians of {ROUNDS} rounds per cpu-second")
        for name, figure in medians.items():
            unit = "records" if name.endswith("at random") else "MB"
            print(f"  {name:<40} {figure:>10,.0f} {unit}", flush=True)
        return medians

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def add(self, name: str, read: Callable[[], tuple[int, int]]) -> None:
        """A contender that reads everything and returns how many records and bytes there were."""

        def measure() -> float:
            before = cpu_seconds()
            found = read()
            used = cpu_seconds() - before
            assert found == (len(self.records), self.bytes), (name, found)
            return self.bytes / used / 1e6

        self.contenders[name] = measure

    def recordio(self) -> None:
        for compressor in ("none", "snappy"):
            path = self.path(f"recordio-{compressor}")
            with recordio.writer(path, compressor) as out:
                for record in self.records:
                    out.write(record)
            name = f"recordio {compressor}"
            self.add(f"{name}, one by one", lambda path=path: count(recordio.reader(path)))
            self.add(f"{name}, lists", lambda path=path: count_lists(recordio_lists(path, self.batch)))
            self.add(f"{name}, buffer", lambda path=path: count_buffers(path, self.batch))

    def parquet(self) -> None:
        for compressor in ("none", "snappy"):
            path = self.path(f"parquet-{compressor}")
            table = pyarrow.table({"record": pyarrow.array(self.records, type=pyarrow.binary())})
            parquet.write_table(table, path, compression=compressor, use_dictionary=False)
            for way in (batches, whole):
                name = f"parquet {compressor}, {way.__name__}"
                columns = lambda way=way, path=path: way(path, self.batch)  # noqa: E731
                self.add(
                    f"{name}, lists",
                    lambda columns=columns: count_lists(column.to_pylist() for column in columns()),
                )
                self.add(f"{name}, columns", lambda columns=columns: count_columns(columns()))

    def array_record(self) -> None:
        group = 16 if self.size > 50_000 else 256
        path = self.array_record_file(group)
        self.add("array_record", lambda: count(array_record.ArrayRecordReader(path).read_all()))

    def array_record_file(self, group: int) -> str:
        path = self.path(f"array-{group}")
        writer = array_record.ArrayRecordWriter(path, f"group_size:{group},uncompressed")
        for record in self.records:
            writer.write(record)
        writer.close()
        return path

    def tfrecord(self) -> None:
        """TFRecord as PyPI's `tfrecord` reads it, in Python and without looking at checksums."""
        path = self.path("tfrecord")
        with open(path, "wb") as out:
            for record in self.records:
                out.write(struct.pack("<QI", len(record), 0) + record + bytes(4))
        self.add("tfrecord", lambda: count(map(bytes, tfrecord.tfrecord_iterator(path))))

    def at_random(self) -> None:
        choice = random.Random(5)
        numbers = [choice.randrange(len(self.records)) for _ in range(20 * RANDOM_BATCH)]
        batches = [numbers[i : i + RANDOM_BATCH] for i in range(0, len(numbers), RANDOM_BATCH)]
        for compressor in ("none", "snappy"):
            reader = recordio.reader(self.path(f"recordio-{compressor}"))
            self.add_random(f"recordio {compressor}, at random", reader.__getitem__, batches)
        one_each = array_record.ArrayRecordReader(self.array_record_file(1))
        self.add_random("array_record, at random", one_each.read, batches)

    def add_random(self, name: str, read: Callable[[list[int]], list[bytes]], batches: list[list[int]]) -> None:
        def measure() -> float:
            before = cpu_seconds()
            for numbers in batches:
                found = read(numbers)
                assert found[0] == self.records[numbers[0]] and len(found) == len(numbers)
            return sum(map(len, batches)) / (cpu_seconds() - before)

        self.contenders[name] = measure


def print_goals(found: dict[int, dict[str, float]]) -> None:
    print("\n| work | records of | recordio | best peer | factor | to reach |\n| --- | --- | --- | --- | --- | --- |")
    for goal in GOALS:
        for size, factor in goal.factors.items():
            if (figures := found.get(size)) is None:
                continue
            ours, peer = figures[goal.ours], max(figures[name] for name in goal.peers)
            mark = "" if ours >= factor * peer else " (missed)"
            print(f"| {goal.work} | {size} B | {ours:,.0f} | {peer:,.0f} | {ours / peer:.2f} | {factor:g}{mark} |")


def make_records(size: int) -> list[bytes]:
    """Records of which the second half repeats the first, in steps of 100 bytes."""
    source = random.Random(1).randbytes(4 << 20)
    records = []
    for number in range(TOTAL_BYTES // size):
        at = number * 7919 % (len(source) - size)
        parts = [source[at + i : at + i + 50] * 2 for i in range(0, size, 100)]
        records.append(b"".join(parts)[:size])
    return records


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def count(records) -> tuple[int, int]:
    number = size = 0
    for record in records:
        number += 1
        size += len(record)
    return number, size


def count_lists(lists) -> tuple[int, int]:
    number = size = 0
    for records in lists:
        number += len(records)
        size += sum(map(len, records))
    return number, size


def recordio_lists(path: str, batch: int) -> Iterator[list[bytes]]:
    reader = recordio.reader(path)
    return iter(lambda: reader.read_batch(batch), [])


def count_buffers(path: str, batch: int) -> tuple[int, int]:
    reader = recordio.reader(path)
    number = size = 0
    while True:
        data, offsets = reader.read_batch_buffer(batch)
        if len(offsets) == 1:
            return number, size
        number += len(offsets) - 1
        size += len(data)


def batches(path: str, batch: int) -> Iterator[pyarrow.Array]:
    file = parquet.ParquetFile(path)
    return (found.column(0) for found in file.iter_batches(batch_size=batch, use_threads=False))


def whole(path: str, _: int) -> list[pyarrow.Array]:
    return parquet.read_table(path, use_threads=False).column(0).chunks


def count_columns(columns) -> tuple[int, int]:
    number = size = 0
    for column in columns:
        number += len(column)
        offsets = memoryview(column.buffers()[1]).cast("B").cast("i")
        size += offsets[column.offset + len(column)] - offsets[column.offset]
    return number, size


if __name__ == "__main__":
    main()
