"""French and English sentences of WMT-14, shortened for the demonstration."""

import gzip
import tarfile

from paddle.v2.dataset import common

__all__ = ["convert", "fetch", "gen", "get_dict", "model", "test", "train"]

URL_TRAIN = "http://paddlepaddle.cdn.bcebos.com/demo/wmt_shrinked_data/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"
URL_MODEL = "http://paddlepaddle.bj.bcebos.com/demo/wmt_14/wmt14_model.tar.gz"
MD5_MODEL = "0cb4a5366189b6acba876491c8724fa3"

START = "<s>"
END = "<e>"
UNK = "<unk>"
UNK_IDX = 2

# Longer sentences are left out.
_LONGEST = 80


def train(dict_size):
    """A reader of (source, target, target one word further), all as word numbers."""
    return _reader("train/train", dict_size)


def test(dict_size):
    """The same for the sentences kept for testing."""
    return _reader("test/test", dict_size)


def gen(dict_size):
    """The same for the sentences to be translated."""
    return _reader("gen/gen", dict_size)


def get_dict(dict_size, reverse=True):
    """The words of both languages by number, or with `reverse=False` the numbers by word."""
    found = _dictionaries(dict_size)
    if not reverse:
        return found
    return tuple({number: word for word, number in each.items()} for each in found)


def model():
    """The parameters of a trained model."""
    from paddle.v2.parameters import Parameters

    with gzip.open(common.download(URL_MODEL, "wmt14", MD5_MODEL)) as file:
        return Parameters.from_tar(file)


def fetch():
    """Makes sure that the sentences and the model exist."""
    common.download(URL_TRAIN, "wmt14", MD5_TRAIN)
    common.download(URL_MODEL, "wmt14", MD5_MODEL)


def convert(path):
    """Writes both parts as RecordIO."""
    common.convert(path, train(30000), 1000, "wmt14_train")
    common.convert(path, test(30000), 1000, "wmt14_test")


def _dictionaries(size):
    found = []
    with tarfile.open(common.download(URL_TRAIN, "wmt14", MD5_TRAIN)) as archive:
        for ending in ("src.dict", "trg.dict"):
            names = [name for name in archive.getnames() if name.endswith(ending)]
            if len(names) != 1:
                raise ValueError(f"the archive of wmt14 has {len(names)} files `{ending}`, not 1")
            lines = archive.extractfile(names[0]).read().decode("utf-8").splitlines()
            found.append({word.strip(): number for number, word in enumerate(lines[:size])})
    return tuple(found)


def _reader(ending, dict_size):
    def reader():
        source, target = _dictionaries(dict_size)
        with tarfile.open(common.download(URL_TRAIN, "wmt14", MD5_TRAIN)) as archive:
            for name in archive.getnames():
                if not name.endswith(ending):
                    continue
                for line in archive.extractfile(name):
                    parts = line.decode("utf-8").strip().split("\t")
                    if len(parts) != 2:
                        continue
                    given = [source.get(word, UNK_IDX) for word in (START, *parts[0].split(), END)]
                    wanted = [target.get(word, UNK_IDX) for word in parts[1].split()]
                    if max(len(given), len(wanted)) <= _LONGEST:
                        yield given, [target[START], *wanted], [*wanted, target[END]]

    return reader
