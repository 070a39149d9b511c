"""Semantic roles: the test part of CoNLL-2005, which is public, with dictionaries and word vectors of the demonstration."""

import gzip
import tarfile

from paddle.v2.dataset import common

__all__ = ["convert", "fetch", "get_dict", "get_embedding", "test"]

DATA_URL = "http://www.cs.upc.edu/~srlconll/conll05st-tests.tar.gz"
DATA_MD5 = "387719152ae52d60422c016e92a742fc"
# Dictionaries of words, verbs and labels, and the vectors of the words.
EXTRA_URL = "http://paddlepaddle.bj.bcebos.com/demo/srl_dict_and_embedding/"
EXTRAS = {
    "wordDict.txt": "ea7fb7d4c75cc6254716f0177a506baa",
    "verbDict.txt": "0d2977293bbb6cbefab5b0f97db1e77c",
    "targetDict.txt": "d8c7f03ceb5fc2e5a0fa7503a4353751",
    "emb": "bf436eb0faa1f6f9103017f8be57cdb7",
}

_WORDS = "conll05st-release/test.wsj/words/test.wsj.words.gz"
_ROLES = "conll05st-release/test.wsj/props/test.wsj.props.gz"
_UNKNOWN = 0


def test():
    """A reader of nine sequences of one length each, one sample per verb of a sentence.

    They are: words, the five words around the verb (each repeated), the verb (repeated), marks near the verb, labels.
    """
    words, verbs, labels = get_dict()

    def reader():
        for sentence, verb, tags in _sentences():
            at = tags.index("B-V")
            near = [
                sentence[at + step] if 0 <= at + step < len(sentence) else ("bos" if step < 0 else "eos")
                for step in range(-2, 3)
            ]
            marks = [int(abs(place - at) <= 2) for place in range(len(sentence))]
            around = [[words.get(word, _UNKNOWN)] * len(sentence) for word in near]
            numbers = [words.get(word, _UNKNOWN) for word in sentence]
            yield (numbers, *around, [verbs.get(verb)] * len(sentence), marks, [labels.get(tag) for tag in tags])

    return reader


def get_dict():
    """The numbers of words, verbs and labels."""
    return tuple(_load_dict(_extra(name)) for name in ("wordDict.txt", "verbDict.txt", "targetDict.txt"))


def get_embedding():
    """The file of word vectors: a header of 16 bytes, then rows of 32 numbers."""
    return _extra("emb")


def fetch():
    """Makes sure that all files exist."""
    common.download(DATA_URL, "conll05st", DATA_MD5)
    for name in EXTRAS:
        _extra(name)


def convert(path):
    """Writes the data as RecordIO, under the names of 2017."""
    common.convert(path, test(), 1000, "conl105_train")
    common.convert(path, test(), 1000, "conl105_test")


def _extra(name):
    return common.download(EXTRA_URL + name, "conll05st", EXTRAS[name])


def _load_dict(name):
    with open(name, encoding="utf-8") as file:
        return {line.strip(): number for number, line in enumerate(file)}


def _sentences():
    """(words, verb, tags) for every verb of every sentence."""
    with tarfile.open(common.download(DATA_URL, "conll05st", DATA_MD5)) as archive:
        words = gzip.decompress(archive.extractfile(_WORDS).read()).decode("utf-8").split("\n")
        roles = gzip.decompress(archive.extractfile(_ROLES).read()).decode("utf-8").split("\n")
    sentence, columns = [], []
    for word, row in zip(words, roles):
        if row.strip():
            sentence.append(word.strip())
            columns.append(row.split())
            continue
        if sentence:
            verbs = [row[0] for row in columns if row[0] != "-"]
            for number, verb in enumerate(verbs, 1):
                yield sentence, verb, _tags([row[number] for row in columns])
        sentence, columns = [], []


def _tags(brackets):
    """`(A0* *) (V*) *` as `B-A0 I-A0 B-V O`."""
    found, role = [], None
    for part in brackets:
        if part.startswith("("):
            role = part[1 : part.index("*")]
            found.append(f"B-{role}")
        elif part in ("*", "*)"):
            found.append("O" if role is None else f"I-{role}")
        else:
            raise ValueError(f"{part!r} is not a role of CoNLL-2005")
        if part.endswith(")"):
            role = None
    return found
