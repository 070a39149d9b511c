"""Penn Treebank as prepared by Mikolov: sentences as n-grams or as sequences of word numbers."""

import collections
import tarfile

from paddle.v2.dataset import common

__all__ = ["DataType", "build_dict", "convert", "fetch", "test", "train"]

URL = "https://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"

_TRAIN = "./simple-examples/data/ptb.train.txt"
_VALID = "./simple-examples/data/ptb.valid.txt"


class DataType:
    """What a reader gives: windows of n words, or whole sentences."""

    NGRAM = 1
    SEQ = 2


def build_dict(min_word_freq=50):
    """Numbers of all words seen more than `min_word_freq` times, the most frequent first; `<unk>` is last."""
    counts = collections.Counter()
    for name in (_TRAIN, _VALID):
        for words in _sentences(name):
            counts.update(words)
            counts.update(("<s>", "<e>"))
    counts.pop("<unk>", None)
    frequent = [(word, count) for word, count in counts.items() if count > min_word_freq]
    frequent.sort(key=lambda pair: (-pair[1], pair[0]))
    numbers = {word: number for number, (word, _) in enumerate(frequent)}
    numbers["<unk>"] = len(numbers)
    return numbers


def train(word_idx, n, data_type=DataType.NGRAM):
    """A reader of tuples of `n` word numbers, or of (source, target) sentences of at most `n` words."""
    return _reader(_TRAIN, word_idx, n, data_type)


def test(word_idx, n, data_type=DataType.NGRAM):
    """The same for the validation text."""
    return _reader(_VALID, word_idx, n, data_type)


def fetch():
    """Makes sure that the archive exists."""
    common.download(URL, "imikolov", MD5)


def convert(path):
    """Writes both parts as RecordIO, as 5-grams."""
    word_idx = build_dict()
    common.convert(path, train(word_idx, 5), 1000, "imikolov_train")
    common.convert(path, test(word_idx, 5), 1000, "imikolov_test")


def _reader(name, word_idx, n, data_type):
    if data_type not in (DataType.NGRAM, DataType.SEQ):
        raise ValueError(f"data_type is DataType.NGRAM or DataType.SEQ, not {data_type!r}")
    if data_type == DataType.NGRAM and n < 1:
        raise ValueError(f"an n-gram has at least one word, not {n}")
    unknown = word_idx["<unk>"]

    def ngrams():
        for words in _sentences(name):
            numbers = [word_idx.get(word, unknown) for word in ["<s>", *words, "<e>"]]
            for end in range(n, len(numbers) + 1):
                yield tuple(numbers[end - n : end])

    def sequences():
        for words in _sentences(name):
            numbers = [word_idx.get(word, unknown) for word in words]
            source = [word_idx.get("<s>", unknown), *numbers]
            target = [*numbers, word_idx.get("<e>", unknown)]
            if n <= 0 or len(source) <= n:
                yield source, target

    return ngrams if data_type == DataType.NGRAM else sequences


def _sentences(name):
    with tarfile.open(common.download(URL, "imikolov", MD5)) as archive:
        for line in archive.extractfile(name):
            yield line.decode("utf-8").split()
