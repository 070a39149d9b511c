"""Film reviews as word numbers, with 0 for praise and 1 for blame."""

import collections
import itertools
import re
import string
import tarfile

from paddle.v2.dataset import common

__all__ = ["build_dict", "convert", "fetch", "test", "train", "word_dict"]

URL = "http://ai.stanford.edu/%7Eamaas/data/sentiment/aclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def build_dict(pattern, cutoff):
    """Numbers of the words seen more than `cutoff` times in files that match, the most frequent first; `<unk>` is last."""
    counts = collections.Counter(itertools.chain.from_iterable(tokenize(pattern)))
    frequent = sorted((-count, word) for word, count in counts.items() if count > cutoff)
    numbers = {word: number for number, (_, word) in enumerate(frequent)}
    numbers["<unk>"] = len(numbers)
    return numbers


def word_dict():
    """The dictionary of all reviews."""
    return build_dict(re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$"), 150)


def train(word_idx):
    """A reader of (word numbers, 0 or 1); praise and blame take turns."""
    return _reader("train", word_idx)


def test(word_idx):
    """The same for the reviews kept for testing."""
    return _reader("test", word_idx)


def fetch():
    """Makes sure that the archive exists."""
    common.download(URL, "imdb", MD5)


def convert(path):
    """Writes both parts as RecordIO."""
    words = word_dict()
    common.convert(path, train(words), 1000, "imdb_train")
    common.convert(path, test(words), 1000, "imdb_test")


def tokenize(pattern):
    """The words of every file of the archive whose name matches: lower case, without punctuation."""
    with tarfile.open(common.download(URL, "imdb", MD5)) as archive:
        for member in archive:
            if member.isfile() and pattern.match(member.name):
                text = archive.extractfile(member).read().decode("utf-8", "replace")
                yield text.translate(_NO_PUNCTUATION).lower().split()


def _reader(part, word_idx):
    unknown = word_idx["<unk>"]

    def reader():
        kinds = [tokenize(re.compile(rf"aclImdb/{part}/{kind}/.*\.txt$")) for kind in ("pos", "neg")]
        for both in itertools.zip_longest(*kinds):
            for label, words in enumerate(both):
                if words is not None:
                    yield [word_idx.get(word, unknown) for word in words], label

    return reader
