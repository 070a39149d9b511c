"""Readers made of readers.

An error in a background thread is raised where the samples are used; a thread ends when its reader is no longer used.
"""

import collections
import concurrent.futures
import itertools
import queue
import random
import threading

__all__ = [
    "ComposeNotAligned",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "shuffle",
    "xmap_readers",
]

_END = object()


class ComposeNotAligned(ValueError):
    """Readers put side by side have different lengths."""


def samples_of(reader):
    """What a reader gives, also where a function that returns a reader is passed.

    Programs from 2017 do that: `imdb.train(words)` gave samples at first, so they wrote `lambda: imdb.train(words)`, and a reader later.
    """
    while callable(reader):
        reader = reader()
    return reader


def map_readers(func, *readers):
    """A reader of `func` of one sample from each reader."""

    def reader():
        return map(func, *(samples_of(each) for each in readers))

    return reader


def shuffle(reader, buf_size):
    """A reader that gives each `buf_size` samples in random order."""

    def shuffled():
        samples = iter(samples_of(reader))
        while block := list(itertools.islice(samples, buf_size)):
            random.shuffle(block)
            yield from block

    if buf_size < 1:
        raise ValueError(f"buf_size must be at least 1, not {buf_size}")
    return shuffled


def chain(*readers):
    """A reader of all samples of the first reader, then of the second, and so on."""

    def reader():
        return itertools.chain.from_iterable(samples_of(each) for each in readers)

    return reader


def compose(*readers, check_alignment=True):
    """A reader of tuples put together from one sample of each reader, tuples among them laid flat."""

    def flat(samples):
        parts = (sample if isinstance(sample, tuple) else (sample,) for sample in samples)
        return tuple(itertools.chain.from_iterable(parts))

    def reader():
        iterators = [samples_of(each) for each in readers]
        if not check_alignment:
            yield from map(flat, zip(*iterators))
            return
        for samples in itertools.zip_longest(*iterators, fillvalue=_END):
            if any(sample is _END for sample in samples):
                raise ComposeNotAligned("the readers do not have the same number of samples")
            yield flat(samples)

    return reader


def firstn(reader, n):
    """A reader of the first `n` samples."""

    def first():
        return itertools.islice(samples_of(reader), n)

    return first


def cache(reader):
    """A reader that reads once and gives the same samples again from memory."""
    samples = []
    lock = threading.Lock()
    filled = False

    def cached():
        nonlocal filled
        with lock:
            if not filled:
                samples[:] = samples_of(reader)
                filled = True
        return iter(samples)

    return cached


def buffered(reader, size):
    """A reader that is read ahead by up to `size` samples in a thread."""

    def ahead():
        samples = queue.Queue(maxsize=max(size, 1))
        unwanted = threading.Event()
        thread = threading.Thread(target=_fill, args=(reader, samples, unwanted), daemon=True)
        thread.start()
        try:
            while True:
                sample, error = samples.get()
                if error is not None:
                    raise error
                if sample is _END:
                    return
                yield sample
        finally:
            unwanted.set()
            _empty(samples)
            thread.join()

    return ahead


def _fill(reader, samples, unwanted):
    try:
        for sample in samples_of(reader):
            samples.put((sample, None))
            if unwanted.is_set():
                return
        samples.put((_END, None))
    except BaseException as error:  # noqa: BLE001 - it is raised again where the samples are used
        samples.put((None, error))


def _empty(samples):
    """Makes room, so that a thread waiting to put a sample sees that nobody wants it."""
    try:
        while True:
            samples.get_nowait()
    except queue.Empty:
        pass


def xmap_readers(mapper, reader, process_num, buffer_size, order=False):
    """A reader of `mapper` of each sample, computed on `process_num` threads, in the samples' order if asked."""
    room = max(buffer_size, process_num, 1)
    take = _take_in_order if order else _take_any

    def mapped():
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=max(process_num, 1))
        waiting = collections.deque()
        try:
            for sample in samples_of(reader):
                if len(waiting) == room:
                    yield take(waiting)
                waiting.append(pool.submit(mapper, sample))
            while waiting:
                yield take(waiting)
        finally:
            pool.shutdown(cancel_futures=True)

    return mapped


def _take_in_order(waiting):
    return waiting.popleft().result()


def _take_any(waiting):
    done, _ = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
    first = next(future for future in waiting if future in done)
    waiting.remove(first)
    return first.result()
