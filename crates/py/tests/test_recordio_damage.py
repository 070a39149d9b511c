"""Damage is named, never silent; under policy="skip" it is accounted for."""

import os
import pickle

import pytest
import recordio

RECORDS = [b"%03d" % i for i in range(30)]
PER_CHUNK = 5
CHUNK_BYTES = 20 + PER_CHUNK * 7


@pytest.fixture
def path(write_records):
    """Six chunks of five records, none compressed."""
    return write_records(RECORDS, compressor="none", chunk_size=3 * PER_CHUNK)


def flip(path, offset, bit=0):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def test_damage_names_file_offset_and_reason(path):
    flip(path, 2 * CHUNK_BYTES + 30)
    reader = recordio.reader(path)
    assert reader.read_batch(100) == RECORDS[: 2 * PER_CHUNK]
    for _ in range(2):
        with pytest.raises(recordio.DamageError, match="checksum mismatch") as caught:
            reader.read()
        assert (caught.value.file, caught.value.offset) == (path, 2 * CHUNK_BYTES)
        assert caught.value.reason.startswith("checksum mismatch")


@pytest.mark.parametrize("read", ["read", "iterate", "batch", "buffer"])
def test_every_record_before_the_damage_is_given(path, read):
    flip(path, 3 * CHUNK_BYTES + 25)
    reader = recordio.reader(path)
    found = []

    def read_some():
        if read == "read":
            found.append(reader.read())
        elif read == "iterate":
            found.extend(iter([next(reader)]))
        elif read == "batch":
            found.extend(reader.read_batch(4))
        else:
            data, offsets = reader.read_batch_buffer(4)
            found.extend(data[start:stop].tobytes() for start, stop in zip(offsets, offsets[1:]))

    with pytest.raises(recordio.DamageError):
        for _ in range(100):
            read_some()
    assert found == RECORDS[: 3 * PER_CHUNK]


def test_no_flipped_bit_goes_unseen(path):
    with open(path, "rb") as file:
        size = len(file.read())
    for offset in range(size):
        flip(path, offset, offset % 8)
        with pytest.raises(recordio.DamageError):
            list(recordio.reader(path))
        flip(path, offset, offset % 8)
    assert list(recordio.reader(path)) == RECORDS


def test_a_cut_and_zeros_at_the_end_are_seen(path):
    size = os.path.getsize(path)
    os.truncate(path, size - 1)
    with pytest.raises(recordio.DamageError):
        list(recordio.reader(path))
    os.truncate(path, size + 4096)
    with pytest.raises(recordio.DamageError):
        list(recordio.reader(path))


def test_skipping_reads_the_rest_and_reports_lost_ranges(path, write_records):
    flip(path, CHUNK_BYTES + 24)
    flip(path, 4 * CHUNK_BYTES + 26)
    after = write_records([b"after"], "after")
    reader = recordio.reader([path, after], policy="skip")
    assert list(reader) == RECORDS[:5] + RECORDS[10:20] + RECORDS[25:] + [b"after"]
    lost = [(range_.file, range_.start, range_.stop) for range_ in reader.damage]
    assert lost == [
        (path, CHUNK_BYTES, 2 * CHUNK_BYTES),
        (path, 4 * CHUNK_BYTES, 5 * CHUNK_BYTES),
    ]
    assert all("checksum mismatch" in range_.reason for range_ in reader.damage)
    assert "LostRange(file=" in repr(reader.damage[0])


def test_an_intact_file_reports_no_damage(path):
    reader = recordio.reader(path, policy="skip")
    assert list(reader) == RECORDS
    assert reader.damage == []


def test_the_bound_for_skipping_holds_over_all_files(write_records):
    paths = [write_records(RECORDS, f"part-{i}", compressor="none", chunk_size=15) for i in range(3)]
    for path in paths:
        flip(path, 30)
    assert len(list(recordio.reader(paths, policy="skip", max_lost_ranges=3))) == 75
    reader = recordio.reader(paths, policy="skip", max_lost_ranges=2)
    assert len(reader.read_batch(50)) == 50
    with pytest.raises(recordio.DamageError, match="damaged beyond the bound for skipping"):
        reader.read_batch(50)
    with pytest.raises(recordio.DamageError):
        list(recordio.reader(paths, policy="skip", max_lost_bytes=CHUNK_BYTES))


@pytest.mark.parametrize("batch", ["read_batch", "read_batch_buffer"])
def test_records_before_too_much_damage_are_read_and_then_reading_keeps_failing(write_records, batch):
    paths = [write_records(RECORDS, f"part-{i}", compressor="none", chunk_size=15) for i in range(3)]
    for path in paths:
        flip(path, 30)
    reader = recordio.reader(paths, policy="skip", max_lost_ranges=2)
    given = getattr(reader, batch)(60)
    assert (len(given) if batch == "read_batch" else len(given[1]) - 1) == 50
    for _ in range(3):
        with pytest.raises(recordio.DamageError, match="damaged beyond the bound for skipping"):
            getattr(reader, batch)(60)


def test_a_record_asked_for_by_number_is_given_or_an_error(path):
    flip(path, CHUNK_BYTES + 24)
    for policy in ["strict", "skip"]:
        reader = recordio.reader(path, policy=policy)
        assert (reader[0], reader[29]) == (RECORDS[0], RECORDS[29])
        for numbers in [5, [0, 7], slice(0, 10), slice(9, 3, -1)]:
            with pytest.raises(recordio.DamageError):
                reader[numbers]


def test_a_range_under_skip_omits_lost_records_and_reports_them(path):
    flip(path, CHUNK_BYTES + 24)
    reader = recordio.reader(path, policy="skip")
    assert reader.read_range(3, 12) == RECORDS[3:5] + RECORDS[10:12]
    assert [(lost.start, lost.stop) for lost in reader.damage] == [(CHUNK_BYTES, 2 * CHUNK_BYTES)]


def test_a_damage_error_crosses_processes_whole(path):
    flip(path, 30)
    with pytest.raises(recordio.DamageError) as caught:
        recordio.reader(path).read()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is recordio.DamageError
    assert (str(copy), copy.file, copy.offset) == (str(caught.value), path, 0)


def test_a_file_that_shrinks_is_an_error_and_no_signal(write_records):
    path = write_records([b"x" * 1000] * 2000, compressor="none", chunk_size=10_000)
    reader = recordio.reader(path)
    assert reader.read() == b"x" * 1000
    os.truncate(path, 20_000)
    with pytest.raises(recordio.DamageError):
        list(reader)
