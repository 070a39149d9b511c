"""`paddle.v2.reader` and `paddle.v2.batch`."""

import pickle
import threading

import numpy as np
import paddle.v2 as paddle
import paddle.v2.reader as reader
import pytest


def numbers(count, start=0):
    return lambda: iter(range(start, start + count))


def failing():
    yield 1
    raise KeyError("bad")


def test_batches_are_full_but_the_last():
    assert list(paddle.batch(numbers(7), 3)()) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(paddle.batch(numbers(7), 3, drop_last=True)()) == [[0, 1, 2], [3, 4, 5]]
    assert list(paddle.batch(numbers(6), 3)()) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="batch_size must be positive"):
        paddle.batch(numbers(1), 0)


def test_map_chain_firstn():
    assert list(reader.map_readers(lambda a, b: a + b, numbers(3), numbers(3, 10))()) == [10, 12, 14]
    assert list(reader.chain(numbers(2), numbers(2, 5))()) == [0, 1, 5, 6]
    assert list(reader.firstn(numbers(10), 3)()) == [0, 1, 2]
    assert list(reader.firstn(numbers(2), 3)()) == [0, 1]


def test_compose_lays_tuples_flat_and_checks_lengths():
    pairs = reader.map_readers(lambda a: (a, -a), numbers(2))
    assert list(reader.compose(pairs, numbers(2, 5))()) == [(0, 0, 5), (1, -1, 6)]
    with pytest.raises(reader.ComposeNotAligned):
        list(reader.compose(numbers(2), numbers(3))())
    assert list(reader.compose(numbers(2), numbers(3), check_alignment=False)()) == [(0, 0), (1, 1)]


@pytest.mark.parametrize("buf_size", [1, 3, 10, 100])
def test_shuffle_keeps_every_sample(buf_size):
    found = list(reader.shuffle(numbers(20), buf_size)())
    assert sorted(found) == list(range(20))
    assert all(max(found[i : i + buf_size]) < i + buf_size for i in range(0, 20, buf_size)), "each block for itself"


def test_cache_reads_once():
    calls = []

    def once():
        calls.append(1)
        return iter(range(3))

    cached = reader.cache(once)
    assert [list(cached()), list(cached()), len(calls)] == [[0, 1, 2], [0, 1, 2], 1]


def test_a_failed_cache_is_filled_again():
    attempts = iter([failing, numbers(3)])
    cached = reader.cache(lambda: next(attempts)())
    with pytest.raises(KeyError):
        cached()
    assert list(cached()) == [0, 1, 2]


@pytest.mark.parametrize("size", [1, 5, 100])
def test_buffered_gives_the_same_and_passes_errors_on(size):
    assert list(reader.buffered(numbers(50), size)()) == list(range(50))
    samples = reader.buffered(failing, size)()
    assert next(samples) == 1
    with pytest.raises(KeyError):
        next(samples)


def test_a_buffered_reader_left_early_leaves_no_thread():
    before = threading.active_count()
    samples = reader.buffered(numbers(10**9), 3)()
    assert [next(samples), next(samples)] == [0, 1]
    samples.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("order", [True, False])
def test_xmap_maps_every_sample_once(order):
    found = list(reader.xmap_readers(lambda x: x * x, numbers(100), 4, 8, order=order)())
    assert (found if order else sorted(found)) == [x * x for x in range(100)]


@pytest.mark.parametrize("order", [True, False])
def test_xmap_passes_errors_on_and_leaves_no_thread(order):
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        list(reader.xmap_readers(lambda x: 1 // (x - 5), numbers(100), 2, 4, order=order)())
    with pytest.raises(KeyError):
        list(reader.xmap_readers(lambda x: x, failing, 2, 4, order=order)())
    assert threading.active_count() == before


def test_creators(tmp_path, write_records):
    assert [row.tolist() for row in reader.creator.np_array(np.array([[1, 2], [3, 4]]))()] == [[1, 2], [3, 4]]
    (tmp_path / "lines").write_text("a\nb\n\nc")
    assert list(reader.creator.text_file(str(tmp_path / "lines"))()) == ["a", "b", "", "c"]
    path = write_records([pickle.dumps(i) for i in range(10)])
    assert list(reader.creator.recordio(path)()) == list(range(10))
    assert list(reader.creator.recordio([path, path], buf_size=2)()) == list(range(10)) * 2


def test_cloud_reader_shares_samples_among_trainers(write_records, monkeypatch):
    path = write_records([pickle.dumps(i) for i in range(10)], chunk_size=20)
    found = []
    for trainer in range(3):
        monkeypatch.setenv("PADDLE_TRAINER_ID", str(trainer))
        monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
        found += reader.creator.cloud_reader([path], "http://127.0.0.1:2379")()
    assert sorted(found) == list(range(10))


def test_a_function_that_returns_a_reader_is_one():
    def reader():
        return iter(range(5))

    assert list(paddle.batch(lambda: reader, 2)()) == [[0, 1], [2, 3], [4]]
    assert sorted(paddle.reader.shuffle(lambda: reader, 10)()) == list(range(5))
    assert list(paddle.reader.firstn(lambda: reader, 2)()) == [0, 1]
