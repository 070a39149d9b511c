"""The data sets that read archives of 2017, from small archives made here in their layout."""

import gzip
import io
import pickle
import struct
import tarfile
import warnings
import zipfile

import numpy as np
import pytest

import paddle.v2.dataset as dataset


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset.common, "DATA_HOME", str(tmp_path))
    warnings.filterwarnings("ignore", message=".*of the original archive")
    return tmp_path


def put(data_home, module, name, content):
    (data_home / module).mkdir(exist_ok=True)
    (data_home / module / name).write_bytes(content)


def tar_of(files, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_digits_are_scaled_from_minus_one_to_one(data_home):
    images = np.arange(3 * 784, dtype=np.uint32).astype(np.uint8)
    put(data_home, "mnist", "t10k-images-idx3-ubyte.gz", gzip.compress(struct.pack(">IIII", 0x803, 3, 28, 28) + images.tobytes()))
    put(data_home, "mnist", "t10k-labels-idx1-ubyte.gz", gzip.compress(struct.pack(">II", 0x801, 3) + bytes([7, 0, 9])))
    samples = list(dataset.mnist.test()())
    assert [label for _, label in samples] == [7, 0, 9]
    pixels = np.concatenate([pixels for pixels, _ in samples])
    assert pixels.dtype == np.float32
    np.testing.assert_allclose(pixels, images / 127.5 - 1, atol=1e-6)


def test_a_file_that_holds_no_digits_is_refused(data_home):
    for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        put(data_home, "mnist", name, gzip.compress(b"<html>sorry</html>"))
    with pytest.raises(ValueError, match="is not an IDX file"):
        next(dataset.mnist.test()())


def test_reviews_take_turns_and_lose_their_punctuation(data_home):
    texts = {"train/pos/0_9": b"Good, good film!\n", "train/pos/1_9": b"fine", "train/neg/0_1": b"Bad film.", "test/neg/0_1": b"bad"}
    archive = tar_of({f"aclImdb/{name}.txt": text for name, text in texts.items()})
    put(data_home, "imdb", "aclImdb_v1.tar.gz", archive)
    import re

    words = dataset.imdb.build_dict(re.compile(r"aclImdb/.*\.txt$"), 0)
    assert words == {"bad": 0, "film": 1, "good": 2, "fine": 3, "<unk>": 4}
    assert list(dataset.imdb.train(words)()) == [([2, 2, 1], 0), ([0, 1], 1), ([3], 0)]
    assert list(dataset.imdb.test({"<unk>": 0})()) == [([0], 1)]
    assert dataset.imdb.word_dict() == {"<unk>": 0}, "no word is frequent enough"


def test_movielens_joins_users_and_films(data_home):
    files = {
        "movies": "1::Toy Story (1995)::Animation|Comedy\n3::Toy Gun (1990)::Drama\n",
        "users": "1::F::1::10::48067\n5::M::56::16::70072\n",
        "ratings": "".join(f"{user}::{movie}::4::978300760\n" for _ in range(20) for user, movie in ((1, 1), (5, 3))),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name, text in files.items():
            package.writestr(f"ml-1m/{name}.dat", text)
    put(data_home, "movielens", "ml-1m.zip", out.getvalue())
    movielens = dataset.movielens
    assert movielens.get_movie_title_dict() == {"gun": 0, "story": 1, "toy": 2}
    assert movielens.movie_categories() == {"Animation": 0, "Comedy": 1, "Drama": 2}
    assert (movielens.max_movie_id(), movielens.max_user_id(), movielens.max_job_id()) == (3, 5, 16)
    train, test = list(movielens.train()()), list(movielens.test()())
    assert len(train) + len(test) == 40 and test
    assert [1, 1, 0, 10, 1, [0, 1], [2, 1], [3.0]] in train + test
    assert [5, 0, 6, 16, 3, [2], [2, 0], [3.0]] in train + test
    assert movielens.user_info()[1].value() + movielens.movie_info()[1].value() == [1, 1, 0, 10, 1, [0, 1], [2, 1]]


def test_cifar_reads_pickles_of_python_2_and_refuses_others(data_home):
    images = np.arange(2 * 3072, dtype=np.uint32).astype(np.uint8).reshape(2, 3072)
    batch = pickle.dumps({b"data": images, b"labels": [3, 8]}, protocol=2)
    put(data_home, "cifar", "cifar-10-python.tar.gz", tar_of({"cifar-10-batches-py/data_batch_1": batch}))
    samples = list(dataset.cifar.train10()())
    assert [label for _, label in samples] == [3, 8]
    np.testing.assert_allclose(samples[1][0], images[1] / 255, atol=1e-6)
    evil = b"cos\nsystem\n(S'true'\ntR."
    put(data_home, "cifar", "cifar-10-python.tar.gz", tar_of({"cifar-10-batches-py/data_batch_1": evil}))
    with pytest.raises(pickle.UnpicklingError, match="os.system"):
        list(dataset.cifar.train10()())


def test_roles_become_tags_around_each_verb(data_home):
    words = "The\ncat\nsat\nand\nate\nfish\n\n"
    roles = "- (A0* (A0*\n- *) *)\nsit (V*) *\n- * *\neat * (V*)\n- * (A1*)\n\n"
    folder = "conll05st-release/test.wsj"
    archive = tar_of(
        {
            f"{folder}/words/test.wsj.words.gz": gzip.compress(words.encode()),
            f"{folder}/props/test.wsj.props.gz": gzip.compress(roles.encode()),
        }
    )
    put(data_home, "conll05st", "conll05st-tests.tar.gz", archive)
    put(data_home, "conll05st", "wordDict.txt", b"<unk>\nbos\neos\nThe\ncat\nsat\nand\nate\nfish\n")
    put(data_home, "conll05st", "verbDict.txt", b"sit\neat\n")
    put(data_home, "conll05st", "targetDict.txt", b"B-A0\nI-A0\nB-A1\nB-V\nO\n")
    first, second = dataset.conll05.test()()
    assert first[0] == [3, 4, 5, 6, 7, 8]
    assert [column[0] for column in first[1:6]] == [3, 4, 5, 6, 7]
    assert first[6:] == ([0] * 6, [1, 1, 1, 1, 1, 0], [0, 1, 3, 4, 4, 4])
    assert [column[0] for column in second[1:6]] == [5, 6, 7, 8, 2], "beyond the end is `eos`"
    assert second[6:] == ([1] * 6, [0, 0, 1, 1, 1, 1], [0, 1, 4, 4, 3, 2])


def test_sentences_and_their_translation(data_home):
    words = b"<s>\n<e>\n<unk>\nun\ndeux\n"
    archive = tar_of(
        {
            "wmt14/train/train": b"un deux trois\tun\nbroken line\n",
            "wmt14/gen/gen": b"deux\tdeux un\n",
            "wmt14/src.dict": words,
            "wmt14/trg.dict": words,
        }
    )
    put(data_home, "wmt14", "wmt14.tgz", archive)
    assert list(dataset.wmt14.train(5)()) == [([0, 3, 4, 2, 1], [0, 3], [3, 1])]
    assert list(dataset.wmt14.gen(4)()) == [([0, 2, 1], [0, 2, 3], [2, 3, 1])], "the dictionary is cut to its size"
    assert dataset.wmt14.get_dict(5)[0][4] == "deux"


def test_other_data_sets_say_what_to_do():
    with pytest.raises(AttributeError, match="your own reader"):
        dataset.flowers  # noqa: B018


def test_a_function_that_returns_a_reader_can_be_converted(tmp_path):
    """As the programs from 2017 pass `lambda: imdb.train(words)`."""
    dataset.common.convert(str(tmp_path), lambda: lambda: iter([1, 2, 3]), 2, "numbers")
    import recordio

    reader = recordio.reader(str(tmp_path / "numbers-*"))
    assert [pickle.loads(reader.read()) for _ in range(3)] == [1, 2, 3]
