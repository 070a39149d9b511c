"""Groups what a reader gives."""

from paddle.v2.reader.decorator import samples_of

__all__ = ["batch"]


def batch(reader, batch_size, drop_last=False):
    """A reader of lists of `batch_size` samples; the last may be shorter, or is dropped."""
    if batch_size <= 0:
        raise ValueError(f"batch_size must be positive, not {batch_size}")

    def batch_reader():
        samples = []
        for sample in samples_of(reader):
            samples.append(sample)
            if len(samples) == batch_size:
                yield samples
                samples = []
        if samples and not drop_last:
            yield samples

    return batch_reader
