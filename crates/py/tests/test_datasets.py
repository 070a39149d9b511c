"""The data sets of the documents, from files made here in their form."""

import hashlib
import http.server
import io
import os
import tarfile
import threading

import numpy as np
import paddle.v2.dataset.common as common
import paddle.v2.dataset.imikolov as imikolov
import paddle.v2.dataset.uci_housing as uci_housing
import pytest


@pytest.fixture
def data_home(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    return tmp_path


def provide(data_home, monkeypatch, module, name, content):
    """Puts a file where the data set expects it and takes its MD5 for the right one."""
    (data_home / module).mkdir()
    (data_home / module / name).write_bytes(content)
    monkeypatch.setattr(globals()[module], "MD5", hashlib.md5(content).hexdigest())


@pytest.fixture
def housing(data_home, monkeypatch):
    rows = np.random.RandomState(1).uniform(-5, 9, (10, 14)).round(3)
    text = "\n".join(" ".join(str(value) for value in row) for row in rows)
    provide(data_home, monkeypatch, "uci_housing", "housing.data", text.encode())
    return rows


def test_housing_is_scaled_and_divided(housing):
    train, test = list(uci_housing.train()()), list(uci_housing.test()())
    assert (len(train), len(test)) == (8, 2)
    features = np.array([x for x, _ in train + test])
    prices = np.array([y for _, y in train + test])
    assert features.shape == (10, 13) and prices.shape == (10, 1)
    assert np.allclose(features.mean(axis=0), 0) and np.allclose(np.ptp(features, axis=0), 1)
    assert np.allclose(prices[:, 0], housing[:, 13])


def test_the_documents_preprocessing_runs_as_printed(housing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import paddle.v2.dataset as dataset

    dataset.common.convert(output_path = "./dataset",
                reader = dataset.uci_housing.train(),
                line_count = 10,
                name_prefix = "uci_housing_train")
    common.split(reader = uci_housing.train(),
            line_count = 500,
            suffix = "./uci_housing/train-%05d.pickle")
    assert os.listdir("dataset") == ["uci_housing_train-00000-of-00001"]
    assert "train-00000.pickle" in os.listdir("uci_housing")


@pytest.fixture
def sentences(data_home, monkeypatch):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in [("train", b"a b a\nb <unk> c\n"), ("valid", b"a c\n")]:
            member = tarfile.TarInfo(f"./simple-examples/data/ptb.{name}.txt")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    provide(data_home, monkeypatch, "imikolov", "simple-examples.tgz", archive.getvalue())


def test_words_are_numbered_by_frequency_then_name(sentences):
    assert imikolov.build_dict(min_word_freq=0) == {"<e>": 0, "<s>": 1, "a": 2, "b": 3, "c": 4, "<unk>": 5}
    assert imikolov.build_dict(min_word_freq=2) == {"<e>": 0, "<s>": 1, "a": 2, "<unk>": 3}


def test_ngrams_and_sequences_of_the_sentences(sentences):
    words = imikolov.build_dict(0)
    assert list(imikolov.test(words, 2)()) == [(1, 2), (2, 4), (4, 0)]
    assert len(list(imikolov.train(words, 3)())) == 6
    assert list(imikolov.test(words, 9)()) == []
    assert list(imikolov.train(words, 0, imikolov.DataType.SEQ)()) == [
        ([1, 2, 3, 2], [2, 3, 2, 0]),
        ([1, 3, 5, 4], [3, 5, 4, 0]),
    ]
    assert list(imikolov.test(words, 2, imikolov.DataType.SEQ)()) == []
    with pytest.raises(ValueError, match="data_type"):
        imikolov.train(words, 3, "ngram")


@pytest.fixture
def server():
    """A server of what the test puts into `files`."""
    files = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path in files else 404)
            self.end_headers()
            self.wfile.write(files.get(self.path, b""))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", files
        running.shutdown()
        thread.join()


def test_a_missing_file_is_fetched_once_and_checked(data_home, server):
    url, files = server
    files["/x.data"] = b"content"
    md5 = hashlib.md5(b"content").hexdigest()
    name = common.download(url + "/x.data", "module", md5)
    assert name == str(data_home / "module" / "x.data")
    files.clear()
    assert common.download(url + "/x.data", "module", md5) == name, "the second time it is there"


def test_a_file_with_another_sum_is_neither_used_nor_kept(data_home, server):
    url, files = server
    files["/x.data"] = b"other"
    message = "does not exist and cannot be fetched .*the download has MD5 .*put the file with MD5 abc at"
    with pytest.raises(RuntimeError, match=message):
        common.download(url + "/x.data", "module", "abc")
    assert os.listdir(data_home / "module") == []


def test_without_a_network_it_says_how_to_provide_the_file(data_home, monkeypatch):
    monkeypatch.setattr(uci_housing, "URL", "http://127.0.0.1:9/housing.data")
    with pytest.raises(RuntimeError) as caught:
        next(uci_housing.train()())
    expected = str(data_home / "uci_housing" / "housing.data")
    assert f"put the file with MD5 {uci_housing.MD5} at `{expected}`, or set DATA_HOME" in str(caught.value)


def test_another_file_in_data_home_is_used_with_a_warning(data_home):
    (data_home / "module").mkdir()
    (data_home / "module" / "x").write_bytes(b"own")
    with pytest.warns(UserWarning, match=f"has MD5 {hashlib.md5(b'own').hexdigest()}, not abc of the original archive"):
        name = common.download("http://127.0.0.1:9/x", "module", "abc")
    assert name == str(data_home / "module" / "x")
