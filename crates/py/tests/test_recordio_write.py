"""`recordio.writer`: what is accepted, and when the file is there."""

import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import recordio


def test_an_uncompressed_file_is_the_originals_byte_for_byte(write_records):
    path = write_records([b"ab", b""], compressor="none")
    payload = struct.pack("<I", 2) + b"ab" + struct.pack("<I", 0)
    header = struct.pack("<IIIII", 0x01020304, zlib.crc32(payload), 0, len(payload), 2)
    with open(path, "rb") as file:
        assert file.read() == header + payload


def test_the_chunk_size_divides_the_file(write_records):
    reader = recordio.reader(write_records([b"x" * 10] * 7, chunk_size=20))
    assert reader.piece_starts().tolist() == [0, 2, 4, 6, 7]


def test_the_name_appears_when_the_writer_is_closed(tmp_path):
    path = tmp_path / "out"
    out = recordio.writer(path)
    out.write(b"a")
    assert not path.exists()
    out.close()
    assert list(recordio.reader(path)) == [b"a"]
    assert os.listdir(tmp_path) == ["out"]
    out.close()
    with pytest.raises(ValueError, match="the writer is closed"):
        out.write(b"b")


def test_an_exception_in_the_block_leaves_the_old_file(write_records, tmp_path):
    path = write_records([b"old"], "out")
    with pytest.raises(KeyError), recordio.writer(path) as out:
        out.write(b"new")
        raise KeyError
    assert list(recordio.reader(path)) == [b"old"]
    assert os.listdir(tmp_path) == ["out"]
    assert out.closed


def test_a_writer_never_closed_says_what_is_dropped(tmp_path):
    out = recordio.writer(tmp_path / "out")
    out.write(b"a")
    with pytest.warns(RuntimeWarning, match="out` was never closed: 1 records are dropped"):
        del out
    assert os.listdir(tmp_path) == []


def test_text_is_refused(tmp_path):
    with recordio.writer(tmp_path / "out") as out:
        with pytest.raises(TypeError, match="a record is bytes, not str: encode it first"):
            out.write("é中文")
        with pytest.raises(TypeError, match="a record is bytes, not int"):
            out.write(3)
        with pytest.raises(TypeError, match="a record is bytes, not NoneType"):
            out.write(None)
        assert out.records == 0


def test_any_object_with_a_buffer_is_a_record(tmp_path):
    given = [b"a", bytearray(b"b"), memoryview(b"xcx")[1:2], np.array([1, 2], dtype="<u2")]
    with recordio.writer(tmp_path / "out") as out:
        for record in given:
            out.write(record)
        assert out.records == 4
    assert list(recordio.reader(tmp_path / "out")) == [b"a", b"b", b"c", b"\1\0\2\0"]


def test_an_unknown_compressor_is_refused_and_the_known_are_named(tmp_path):
    with pytest.raises(ValueError, match='unknown compressor `lzma`: there are "none", "snappy", "gzip", "zstd"'):
        recordio.writer(tmp_path / "out", compressor="lzma")
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        recordio.writer(tmp_path / "none" / "out")
    assert caught.value.filename == str(tmp_path / "none" / "out")


def test_threads_change_nothing_in_the_file(write_records):
    records = [b"%d" % i * 20 for i in range(3000)]
    one = write_records(records, "one", chunk_size=1000)
    two = write_records(records, "two", chunk_size=1000, threads=2)
    with open(one, "rb") as first, open(two, "rb") as second:
        assert first.read() == second.read()


def test_an_index_can_be_stored_and_shows_a_cut_between_chunks(write_records, tmp_path):
    path = write_records([b"x" * 10] * 6, compressor="none", chunk_size=20, index=True)
    assert len(os.listdir(tmp_path)) == 2
    os.truncate(path, os.path.getsize(path) // 3)
    with pytest.raises(recordio.DamageError, match="index"):
        list(recordio.reader(path))


def test_a_forked_child_cannot_touch_its_parents_file(tmp_path):
    program = """
import os, sys, recordio
out = recordio.writer(sys.argv[1])
out.write(b"parent")
child = os.fork()
if child == 0:
    try:
        out.write(b"child")
    except RuntimeError as error:
        print(error)
    del out
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
out.close()
"""
    path = str(tmp_path / "out")
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert "belongs to the process that opened it" in done.stdout
    assert list(recordio.reader(path)) == [b"parent"]
