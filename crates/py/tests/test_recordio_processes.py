"""Readers in other processes: pickled, forked, in a pool."""

import copy
import multiprocessing
import pickle

import pytest
import recordio

RECORDS = [b"%d" % i * 3 for i in range(200)]


@pytest.fixture
def paths(write_records):
    return [write_records(RECORDS[:120], "a", chunk_size=50), write_records(RECORDS[120:], "b", chunk_size=50)]


@pytest.mark.parametrize("taken", [0, 1, 11, 119, 120, 121, 199, 200])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickled_reader_resumes_at_its_position(paths, taken, protocol):
    reader = recordio.reader(paths)
    assert reader.read_batch(taken) == RECORDS[:taken]
    other = pickle.loads(pickle.dumps(reader, protocol))
    assert list(other) == RECORDS[taken:]
    assert list(reader) == RECORDS[taken:], "the first one is where it was"


def test_a_pickled_reader_keeps_its_options(paths):
    reader = recordio.reader(paths, policy="skip", max_lost_ranges=3, max_lost_bytes=9, cache_bytes=1000)
    args, options = pickle.loads(pickle.dumps(reader)).__getnewargs_ex__()
    assert args == (paths,)
    assert options == {"policy": "skip", "max_lost_ranges": 3, "max_lost_bytes": 9, "cache_bytes": 1000}


def test_a_closed_reader_stays_closed(paths):
    reader = recordio.reader(paths)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        pickle.loads(pickle.dumps(reader)).read()


def test_a_copy_after_damage_resumes_at_the_same_record(write_records):
    path = write_records(RECORDS, compressor="none", chunk_size=50)
    with open(path, "r+b") as file:
        file.seek(30)
        file.write(b"!")
    whole = list(recordio.reader(path, policy="skip"))
    assert 0 < len(whole) < len(RECORDS)
    reader = recordio.reader(path, policy="skip")
    assert reader.read_batch(20) == whole[:20]
    assert list(copy.copy(reader)) == whole[20:]


def test_a_subclass_is_pickled_as_itself(paths):
    assert type(pickle.loads(pickle.dumps(Labelled(paths)))) is Labelled


class Labelled(recordio.reader):
    """A user's own kind of reader."""


def test_parent_and_forked_child_continue_reading_independently(paths):
    reader = recordio.reader(paths)
    assert reader.read_batch(30) == RECORDS[:30]
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe()
    child = context.Process(target=lambda: sender.send([list(reader), reader[[0, 150]]]))
    child.start()
    assert list(reader) == RECORDS[30:]
    assert receiver.poll(60), "the child answers"
    assert receiver.recv() == [RECORDS[30:], [RECORDS[0], RECORDS[150]]]
    child.join()


def test_a_child_forked_while_a_thread_reads_gets_an_error_and_does_not_hang(run_python):
    """The thread waits inside the reader, for the writer of a pipe; the child has the lock but not the thread."""
    program = """
import os, platform, threading, recordio

OPENAT = {"x86_64": "257", "aarch64": "56"}[platform.machine()]

def wait_until_opening(thread):
    while True:
        with open(f"/proc/self/task/{thread.native_id}/syscall") as file:
            if file.read().split()[0] == OPENAT:
                return

os.mkfifo("pipe")
reader = recordio.reader("pipe")

def read():
    try:
        reader.read()
    except (OSError, recordio.Error):
        pass

thread = threading.Thread(target=read)
thread.start()
wait_until_opening(thread)
child = os.fork()
if child == 0:
    try:
        reader.read()
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
open("pipe", "wb").close()
thread.join()
"""
    assert "when the process was forked; open a new one in this process" in run_python(program)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_share_a_reader_by_number(paths, method):
    reader = recordio.reader(paths)
    with multiprocessing.get_context(method).Pool(2) as pool:
        numbers = [list(range(start, 200, 5)) for start in range(5)]
        found = pool.starmap(_by_number, [(reader, each) for each in numbers])
    assert found == [[RECORDS[i] for i in each] for each in numbers]


def _by_number(reader, numbers):
    return reader[numbers]
