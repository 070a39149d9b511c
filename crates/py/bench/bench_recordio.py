"""How fast Python gets records, beside the formats people use today.

    crates/py/bench/run.sh            # builds for speed, installs the peers, runs this
    python bench_recordio.py [SIZE…]  # record sizes; 100, 1024 and 102400 unless given

Figures are MB per second of processor time, all threads counted, the best of several runs: they hardly depend on
what else the machine does. Files are in the page cache, records half compressible. Every run counts records and
bytes, and every row says what it makes of a record: a `bytes` object, or a place in one buffer.
"""

from __future__ import annotations

import importlib
import os
import random
import resource
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable

import recordio

TOTAL_BYTES = 48 << 20
REPEATS = 5
RANDOM_BATCH = 1000
BATCH_BYTES = 1 << 20


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or [100, 1024, 102400]
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            Bench(folder, size).run()


class Bench:
    def __init__(self, folder: str, size: int) -> None:
        self.folder = folder
        self.size = size
        self.records = make_records(size)
        self.bytes = sum(map(len, self.records))
        self.batch = max(1, BATCH_BYTES // size)

    def run(self) -> None:
        print(f"\nrecords of {self.size} bytes, {len(self.records)} of them; MB per cpu-second, best of {REPEATS}")
        self.recordio_rows()
        self.parquet_rows()
        self.array_record_rows()
        self.framed_row()
        self.random_rows()

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def row(self, name: str, read: Callable[[], tuple[int, int]]) -> None:
        best = float("inf")
        for _ in range(REPEATS):
            before = cpu_seconds()
            found = read()
            best = min(best, cpu_seconds() - before)
            assert found == (len(self.records), self.bytes), (name, found)
        print(f"  {name:<52} {self.bytes / best / 1e6:>9,.0f}", flush=True)

    def recordio_rows(self) -> None:
        for compressor in ("none", "snappy"):
            path = self.path(f"recordio-{compressor}")
            with recordio.writer(path, compressor) as out:
                for record in self.records:
                    out.write(record)
            self.read_rows(f"recordio {compressor}", path)

    def read_rows(self, name: str, path: str) -> None:
        self.row(f"{name}, one by one", lambda: count(recordio.reader(path)))
        self.row(f"{name}, read_batch to a list", lambda: count_batches(recordio_batches(path, self.batch)))
        self.row(f"{name}, buffer and offsets", lambda: count_buffers(path, self.batch))

    def parquet_rows(self) -> None:
        pyarrow, parquet = peer("pyarrow"), peer("pyarrow.parquet")
        if parquet is None:
            return
        pyarrow.set_cpu_count(1)
        for compressor in ("none", "snappy"):
            path = self.path(f"parquet-{compressor}")
            column = pyarrow.array(self.records, type=pyarrow.binary())
            table = pyarrow.table({"record": column})
            parquet.write_table(table, path, compression=compressor, use_dictionary=False)

            self.column_rows(f"parquet {compressor}", parquet, path)

    def column_rows(self, name: str, parquet, path: str) -> None:
        def batches():
            file = parquet.ParquetFile(path)
            return (batch.column(0) for batch in file.iter_batches(batch_size=self.batch, use_threads=False))

        def whole() -> list:
            return parquet.read_table(path, use_threads=False).column(0).chunks

        self.row(f"{name}, batches, to_pylist", lambda: count_batches(c.to_pylist() for c in batches()))
        self.row(f"{name}, whole, to_pylist", lambda: count_batches(c.to_pylist() for c in whole()))
        self.row(f"{name}, batches, Arrow columns", lambda: count_columns(batches()))
        self.row(f"{name}, whole, an Arrow column", lambda: count_columns(whole()))

    def array_record_rows(self) -> None:
        module = peer("array_record.python.array_record_module")
        if module is None:
            return
        group = 16 if self.size > 50_000 else 256
        for compressor in ("uncompressed", "snappy"):
            path = self.path(f"array-{compressor}")
            writer = module.ArrayRecordWriter(path, f"group_size:{group},{compressor}")
            for record in self.records:
                writer.write(record)
            writer.close()
            name = f"array_record {compressor}, group {group}"
            self.row(f"{name}, read_all", lambda path=path: count(module.ArrayRecordReader(path).read_all()))

    def framed_row(self) -> None:
        """Length, checksum, bytes: TFRecord's framing, read in Python, with zlib's checksum."""
        path = self.path("framed")
        with open(path, "wb") as out:
            for record in self.records:
                out.write(struct.pack("<QI", len(record), zlib.crc32(record)) + record)
        self.row("length and checksum before each record, in Python", lambda: count(framed(path)))

    def random_rows(self) -> None:
        choice = random.Random(5)
        numbers = [choice.randrange(len(self.records)) for _ in range(20 * RANDOM_BATCH)]
        batches = [numbers[i : i + RANDOM_BATCH] for i in range(0, len(numbers), RANDOM_BATCH)]
        print(f"  at random, batches of {RANDOM_BATCH}; records per cpu-second")
        for compressor in ("none", "snappy"):
            reader = recordio.reader(self.path(f"recordio-{compressor}"))
            self.random_row(f"recordio {compressor}", reader.__getitem__, batches)
        module = peer("array_record.python.array_record_module")
        if module is not None:
            path = self.path("array-one")
            writer = module.ArrayRecordWriter(path, "group_size:1,uncompressed")
            for record in self.records:
                writer.write(record)
            writer.close()
            self.random_row("array_record uncompressed, group 1", module.ArrayRecordReader(path).read, batches)

    def random_row(self, name: str, read: Callable, batches: list[list[int]]) -> None:
        best = float("inf")
        for _ in range(REPEATS):
            before = cpu_seconds()
            for numbers in batches:
                found = read(numbers)
                assert found[0] == self.records[numbers[0]] and len(found) == len(numbers)
            best = min(best, cpu_seconds() - before)
        print(f"  {name:<52} {sum(map(len, batches)) / best:>9,.0f}", flush=True)


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


def count_batches(batches) -> tuple[int, int]:
    number = size = 0
    for batch in batches:
        number += len(batch)
        size += sum(map(len, batch))
    return number, size


def recordio_batches(path: str, batch: int):
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


def count_columns(columns) -> tuple[int, int]:
    number = size = 0
    for column in columns:
        number += len(column)
        offsets = memoryview(column.buffers()[1]).cast("B").cast("i")
        size += offsets[column.offset + len(column)] - offsets[column.offset]
    return number, size


def framed(path: str):
    with open(path, "rb", buffering=1 << 20) as file:
        while header := file.read(12):
            size, checksum = struct.unpack("<QI", header)
            record = file.read(size)
            assert zlib.crc32(record) == checksum
            yield record


def peer(name: str):
    """A peer's module; without it its rows are left out, which is said."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"  ({error}; its rows are left out)")
        return None


if __name__ == "__main__":
    main()
