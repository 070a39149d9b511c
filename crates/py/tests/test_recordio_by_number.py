"""`len(r)`, `r[i]`, `r[[…]]` and slices, over one file and many."""

import random

import numpy as np
import pytest
import recordio


@pytest.fixture(params=["none", "snappy"])
def numbered(request, write_records):
    """A reader of 250 records in three files, one of which is empty, and the records."""
    records = [b"%d" % i * (i % 7) for i in range(250)]
    options = {"compressor": request.param, "chunk_size": 60}
    paths = [
        write_records(records[:90], "a", **options),
        write_records([], "b", **options),
        write_records(records[90:], "c", **options),
    ]
    return recordio.reader(paths), records


def test_records_of_all_files_are_counted(numbered):
    reader, records = numbered
    assert len(reader) == len(records)


def test_every_number_gives_its_record(numbered):
    reader, records = numbered
    assert [reader[i] for i in range(250)] == records
    assert [reader[-i] for i in range(1, 251)] == records[::-1]
    assert reader[np.int32(7)] == records[7]


def test_a_list_gives_its_records_in_its_order(numbered):
    reader, records = numbered
    numbers = [random.Random(1).randrange(-250, 250) for _ in range(1000)]
    expected = [records[i] for i in numbers]
    assert reader[numbers] == expected
    assert reader[tuple(numbers)] == expected
    assert reader[np.array(numbers)] == expected
    assert reader[np.array(numbers, dtype=np.int16)] == expected
    assert reader[[]] == []
    assert reader[[5, 5, 5]] == [records[5]] * 3


@pytest.mark.parametrize("start", [None, 0, 3, 89, 90, -10, 250, 400, -400])
@pytest.mark.parametrize("stop", [None, 0, 91, -1, 250, 400])
@pytest.mark.parametrize("step", [None, 1, 2, -1, -7])
def test_slices_are_those_of_a_list(numbered, start, stop, step):
    reader, records = numbered
    assert reader[start:stop:step] == records[start:stop:step]


@pytest.mark.parametrize("number", [250, -251, 10**30, -(10**30)])
def test_a_number_beyond_the_end_is_an_index_error(numbered, number):
    reader, _ = numbered
    with pytest.raises(IndexError):
        reader[number]
    with pytest.raises(IndexError):
        reader[[0, number]]


def test_an_index_that_is_not_a_number_is_a_type_error(numbered):
    reader, _ = numbered
    with pytest.raises(TypeError, match="not by str"):
        reader["1"]
    with pytest.raises(TypeError, match="flatnonzero"):
        reader[np.ones(250, dtype=bool)]
    with pytest.raises(TypeError):
        reader[1.5]


def test_reading_by_number_keeps_the_position_of_the_reader(numbered):
    reader, records = numbered
    assert reader.read() == records[0]
    assert reader[100] == records[100]
    assert reader.read() == records[1]


def test_more_files_than_are_kept_open(write_records):
    paths = [write_records([b"%d-%d" % (file, i) for i in range(3)], f"part-{file:03d}") for file in range(100)]
    reader = recordio.reader(paths)
    assert len(reader) == 300
    assert reader[::-1][0] == b"99-2"
    assert [reader[i] for i in (0, 299, 1, 298)] == [b"0-0", b"99-2", b"0-1", b"99-1"]


def test_pieces_are_chunks_and_small_ones_go_together(write_records):
    reader = recordio.reader([write_records([b"x" * 10] * 5, "a", chunk_size=20), write_records([b"y"], "b")])
    assert reader.piece_starts().tolist() == [0, 2, 4, 5, 6]
    assert reader.piece_starts(min_bytes=1 << 20).tolist() == [0, 5, 6]
    assert reader.read_range(4, 6) == [b"x" * 10, b"y"]
    with pytest.raises(ValueError, match="no records 4 to 7: there are 6"):
        reader.read_range(4, 7)
