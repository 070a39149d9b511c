"""`recordio.reader` in order: one by one, in batches, over several files."""

import gc
import gzip
import os
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import recordio

COMPRESSORS = ["none", "snappy", "gzip", "zstd"]


def numbered(count, size=0):
    return [b"%d" % i + b"." * (i % (size + 1)) for i in range(count)]


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_written_records_are_read(write_records, compressor):
    records = [b"", b"a", b"\0\n", bytes(range(256)) * 50, b""] + numbered(500, 90)
    path = write_records(records, compressor=compressor, chunk_size=1000)
    assert list(recordio.reader(path)) == records


def test_a_pattern_does_not_match_index_files(write_records):
    write_records([b"a"], "part-0", index=True)
    last = write_records([b"b"], "part-1", index=True)
    folder = last.removesuffix("part-1")
    assert list(recordio.reader(folder + "part-*")) == [b"a", b"b"]
    assert recordio.reader(folder + "*").paths == [folder + "part-0", folder + "part-1"]


def test_an_empty_record_is_not_the_end(write_records):
    reader = recordio.reader(write_records([b"", b"x"]))
    assert [reader.read(), reader.read(), reader.read(), reader.read()] == [b"", b"x", None, None]


def test_a_file_without_records_is_at_its_end(write_records):
    reader = recordio.reader(write_records([]))
    assert reader.read() is None
    assert reader.read_batch(3) == []
    assert len(reader) == 0
    assert reader, "an open reader is true"


@pytest.mark.parametrize("n", [1, 7, 100, 1000, 2**62])
def test_batches_have_every_record_once_and_in_order(write_records, n):
    records = numbered(300, 40)
    reader = recordio.reader([write_records(records[:200], "a", chunk_size=500), write_records(records[200:], "b")])
    batches = list(iter(lambda: reader.read_batch(n), []))
    assert [len(batch) for batch in batches[:-1]] == [n] * (len(batches) - 1)
    assert [record for batch in batches for record in batch] == records


@pytest.mark.parametrize("n", [1, 7, 100, 1000, 2**62])
def test_buffers_have_every_record_once_and_in_order(write_records, n):
    records = numbered(300, 40)
    reader = recordio.reader([write_records(records[:200], "a", chunk_size=500), write_records(records[200:], "b")])
    found = []
    while True:
        data, offsets = reader.read_batch_buffer(n)
        assert (data.dtype, offsets.dtype, offsets[0]) == (np.uint8, np.int64, 0)
        if len(offsets) == 1:
            break
        assert len(data) == offsets[-1]
        found += [data[start:stop].tobytes() for start, stop in zip(offsets, offsets[1:])]
    assert found == records


@pytest.mark.parametrize("max_bytes, lengths", [(0, [1] * 10), (2500, [3, 3, 3, 1]), (1 << 30, [10])])
def test_a_batch_ends_where_it_has_its_bytes(write_records, max_bytes, lengths):
    records = [bytes([number]) * 1000 for number in range(10)]
    path = write_records(records, compressor="none", chunk_size=500)
    reader = recordio.reader(path)
    batches = list(iter(lambda: reader.read_batch(100, max_bytes=max_bytes), []))
    assert [len(batch) for batch in batches] == lengths
    assert [record for batch in batches for record in batch] == records
    reader, found = recordio.reader(path), []
    while len(offsets := reader.read_batch_buffer(100, max_bytes=max_bytes)[1]) > 1:
        found.append(len(offsets) - 1)
    assert found == lengths


@pytest.mark.parametrize("read", ["reader.read_batch(2**62)", "reader.read_batch_buffer(2**62)"])
def test_a_signal_ends_a_batch(write_records, run_python, read):
    """The records are empty: the batch would need minutes and no memory. Were it not left, all would be read."""
    path = write_records([b""])
    program = f"""
import signal, sys, recordio

class Rang(Exception):
    pass

def ring(*_):
    raise Rang

reader = recordio.reader([sys.argv[1]] * 300_000)
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    {read}
except Rang:
    print("left" if reader.read() == b"" else "read to the end")
"""
    assert run_python(program, path) == "left\n"


def test_a_buffer_outlives_its_reader(write_records):
    data, offsets = recordio.reader(write_records([b"ab", b"c"])).read_batch_buffer(10)
    gc.collect()
    assert (data.tobytes(), offsets.tolist()) == (b"abc", [0, 2, 3])
    data[0] = 0


def test_ways_of_reading_can_be_mixed(write_records):
    records = numbered(20)
    reader = recordio.reader(write_records(records, chunk_size=6))
    found = [reader.read(), *reader.read_batch(4)]
    data, offsets = reader.read_batch_buffer(3)
    found += [data[start:stop].tobytes() for start, stop in zip(offsets, offsets[1:])]
    found += [next(reader), *reader]
    assert found == records


def test_patterns_commas_and_lists_name_files(write_records, tmp_path):
    for name in ["b-1", "a-1", "a-0", "c-0"]:
        write_records([name.encode()], name)
    at = str(tmp_path)
    assert list(recordio.reader(f"{at}/a-*")) == [b"a-0", b"a-1"]
    assert list(recordio.reader(f"{at}/b-1, {at}/a-?")) == [b"b-1", b"a-0", b"a-1"]
    assert list(recordio.reader([f"{at}/c-0", tmp_path / "a-[1]"])) == [b"c-0", b"a-1"]
    assert recordio.reader((tmp_path / "c-0", tmp_path / "b-1")).paths == [f"{at}/c-0", f"{at}/b-1"]
    assert list(recordio.reader(os.fsencode(tmp_path / "c-0"))) == [b"c-0"]


def test_an_archive_among_the_files_is_skipped_with_a_warning(write_records, tmp_path):
    write_records([b"a"], "train-00000-of-00001")
    archive = tmp_path / "train-images-idx3-ubyte.gz"
    archive.write_bytes(gzip.compress(b"pixels"))
    with pytest.warns(UserWarning, match="train-images-idx3-ubyte.gz` is a gzip file"):
        assert list(recordio.reader(str(tmp_path / "train-*"))) == [b"a"]
    with pytest.warns(UserWarning, match="it is skipped"):
        assert recordio.reader(str(archive)).read() is None
    write_records([b"b"], "named.gz")
    assert list(recordio.reader(str(tmp_path / "named.gz"))) == [b"b"]


def test_a_name_that_exists_is_never_a_pattern(write_records, tmp_path):
    write_records([b"pattern"], "x[0],*")
    write_records([b"other"], "x0")
    assert list(recordio.reader(str(tmp_path / "x[0],*"))) == [b"pattern"]


def test_a_missing_file_or_pattern_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file: `.*/none`"):
        recordio.reader(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=r"no file matches `.*/none-\*`"):
        recordio.reader(str(tmp_path / "none-*"))
    with pytest.raises(FileNotFoundError, match="list of names is empty"):
        recordio.reader([])


def test_a_folder_is_refused_by_the_system(tmp_path):
    with pytest.raises(IsADirectoryError):
        recordio.reader(str(tmp_path)).read()


def test_a_closed_reader_refuses_to_read(write_records):
    with recordio.reader(write_records([b"a", b"b"])) as reader:
        assert reader.read() == b"a"
    assert reader.closed
    uses = [reader.read, reader.__next__, reader.__len__, lambda: reader.read_batch(1), lambda: reader[0]]
    for use in uses:
        with pytest.raises(ValueError, match="the reader is closed"):
            use()
    reader.close()


def test_an_unknown_policy_is_refused(write_records):
    with pytest.raises(ValueError, match='unknown policy `lenient`: "strict" stops'):
        recordio.reader(write_records([b"a"]), policy="lenient")


def test_threads_share_a_reader_and_each_record_goes_to_one(write_records):
    records = numbered(5000, 30)
    reader = recordio.reader(write_records(records, chunk_size=2000))
    found = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(reader)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record for mine in found for record in mine) == sorted(records)


def test_other_threads_run_while_a_file_is_opened(run_python):
    """Opening a pipe waits for its writer, which here is another thread: it must get its turn."""
    program = """
import os, threading, recordio
os.mkfifo("pipe")

def read():
    try:
        recordio.reader("pipe").read()
    except (OSError, recordio.Error):
        pass

thread = threading.Thread(target=read)
thread.start()
open("pipe", "wb").close()
thread.join()
print("done")
"""
    assert run_python(program) == "done\n"


@pytest.mark.skipif(
    "PADDLECLOUD_RECORDIO_VECTORS" not in os.environ, reason="PADDLECLOUD_RECORDIO_VECTORS does not name a folder"
)
def test_files_of_the_original_library_read_identically():
    def expected(i, size):
        return bytes((i * 131 + j * j * 7 + j // 13) % 256 for j in range(size))

    folder = os.environ["PADDLECLOUD_RECORDIO_VECTORS"]
    multi = [expected(i, i * 37 % 900) for i in range(200)]
    for compressor in ["none", "snappy", "gzip"]:
        reader = recordio.reader(f"{folder}/multi-{compressor}.rio")
        assert list(reader) == multi
        assert reader[::-1] == multi[::-1]
    assert list(recordio.reader(f"{folder}/tiny.rio")) == [b"a", b"", b"hello", b"\0\1\2", b"x" * 1000]
    assert list(recordio.reader(f"{folder}/empty.rio")) == []


def second_layout(records, per_chunk):
    """A file as the source of the C++ library describes it, uncompressed: its own words, none of our code."""
    chunks = []
    for at in range(0, len(records), per_chunk):
        some = records[at : at + per_chunk]
        payload = b"".join(struct.pack("<I", len(record)) + record for record in some)
        magic, compressor = 0x01020304, 0
        chunks.append(struct.pack("<5I", magic, len(some), zlib.crc32(payload), compressor, len(payload)) + payload)
    return b"".join(chunks)


def test_the_second_layout_is_read_as_its_source_describes_it(tmp_path):
    records = [b"", b"one", b"two" * 1000, *(b"%d" % number for number in range(2500))]
    path = tmp_path / "second"
    path.write_bytes(second_layout(records, 1000))
    reader = recordio.reader(path)
    assert list(reader) == records
    assert reader[1002] == records[1002] and len(reader) == len(records)


def test_the_vectors_of_the_second_layout_are_what_its_source_describes():
    vectors = Path(__file__).resolve().parents[2] / "recordio" / "tests" / "vectors"
    data, found = (vectors / "fluid-none.rio").read_bytes(), []
    while data:
        magic, count, checksum, compressor, size = struct.unpack_from("<5I", data)
        payload, data = data[20 : 20 + size], data[20 + size :]
        assert (magic, compressor, zlib.crc32(payload), len(payload)) == (0x01020304, 0, checksum, size)
        for _ in range(count):
            (length,) = struct.unpack_from("<I", payload)
            found.append(payload[4 : 4 + length])
            payload = payload[4 + length :]
        assert payload == b""
    assert len(found) == 40
    for name in ("fluid-none", "fluid-snappy", "fluid-snappystream"):
        assert list(recordio.reader(vectors / f"{name}.rio")) == found, name
