"""Readers of arrays and files."""

import pickle

from paddle.v2.reader.decorator import buffered

__all__ = ["cloud_reader", "np_array", "recordio", "text_file"]


def np_array(x):
    """A reader of the rows of an array."""

    def reader():
        if x.ndim < 1:
            yield x
        else:
            yield from x

    return reader


def text_file(path):
    """A reader of the lines of a file, without their ends."""

    def reader():
        with open(path) as file:
            for line in file:
                yield line.rstrip("\n")

    return reader


def recordio(paths, buf_size=100):
    """A reader of the pickled samples in RecordIO files, read ahead by `buf_size`."""

    def reader():
        from paddlecloud._native import reader as open_records

        with open_records(paths) as records:
            for record in records:
                yield pickle.loads(record)

    return buffered(reader, buf_size)


def cloud_reader(paths, etcd_endpoints=None, timeout_sec=5, buf_size=64):
    """A reader of this trainer's share of the pickled samples in RecordIO files.

    Every sample goes to one trainer. Shares are fixed by the trainer's number, so `etcd_endpoints` and
    `timeout_sec`, which the original needed to ask for work, are not used.
    """
    from paddlecloud.data import RecordDataset

    def reader():
        yield from RecordDataset(paths, decode=pickle.loads)

    return buffered(reader, buf_size)
