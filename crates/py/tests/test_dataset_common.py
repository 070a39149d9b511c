"""`paddle.v2.dataset.common`: nothing lost, nothing doubled, nothing half written."""

import glob
import marshal
import os
import pickle

import numpy as np
import paddle.v2.dataset.common as common
import pytest
import recordio


def samples(count):
    return lambda: iter([(i, [i / 7]) for i in range(count)])


def files_of(folder):
    return sorted(os.listdir(folder))


def records_of(path):
    return [pickle.loads(record) for record in recordio.reader(str(path))]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 95])
def test_convert_fills_files_with_line_count_samples(tmp_path, count):
    common.convert(str(tmp_path), samples(count), 10, "train")
    total = max(1, -(-count // 10))
    assert files_of(tmp_path) == [f"train-{i:05d}-of-{total:05d}" for i in range(total)]
    parts = [records_of(tmp_path / name) for name in files_of(tmp_path)]
    assert [len(part) for part in parts[:-1]] == [10] * (total - 1)
    assert [sample for part in parts for sample in part] == list(samples(count)())


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 95])
def test_convert_into_shards_differs_by_one_at_most(tmp_path, count):
    common.convert(output_path=str(tmp_path), reader=samples(count), num_shards=4, name_prefix="train")
    assert files_of(tmp_path) == [f"train-{i:05d}-of-00004" for i in range(4)]
    parts = [records_of(tmp_path / name) for name in files_of(tmp_path)]
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(sample for part in parts for sample in part) == list(samples(count)())


def test_convert_as_the_documents_call_it(tmp_path):
    common.convert(output_path=str(tmp_path / "new"), reader=samples(5), line_count=2, num_prefix="uci")
    assert files_of(tmp_path / "new") == [f"uci-{i:05d}-of-00003" for i in range(3)]


def test_convert_again_replaces_what_it_wrote_and_nothing_else(tmp_path):
    for other in ["train-notes.txt", "trainer-00000-of-00001"]:
        (tmp_path / other).write_text("keep")
    common.convert(str(tmp_path), samples(50), 10, "train")
    common.convert(str(tmp_path), samples(15), 10, "train")
    ours = ["train-00000-of-00002", "train-00001-of-00002"]
    assert files_of(tmp_path) == [*ours, "train-notes.txt", "trainer-00000-of-00001"]


@pytest.mark.parametrize("how", [{"line_count": 3}, {"num_shards": 3}])
def test_a_failed_convert_keeps_existing_files(tmp_path, how):
    common.convert(str(tmp_path), samples(4), name_prefix="train", **how)
    before = files_of(tmp_path)

    def failing():
        yield from range(8)
        raise KeyError("bad sample")

    with pytest.raises(KeyError):
        common.convert(str(tmp_path), failing, name_prefix="train", **how)
    assert files_of(tmp_path) == before
    assert sorted(sample for name in before for sample in records_of(tmp_path / name)) == list(samples(4)())


def test_a_convert_that_cannot_rename_its_files_keeps_existing_files(tmp_path):
    common.convert(str(tmp_path), samples(4), 5, "train")
    (tmp_path / "train-00001-of-00002").mkdir()
    with pytest.raises(OSError):
        common.convert(str(tmp_path), samples(10), 5, "train")
    assert files_of(tmp_path) == ["train-00000-of-00001", "train-00001-of-00002"]
    assert records_of(tmp_path / "train-00000-of-00001") == list(samples(4)())


def test_convert_refuses_invalid_arguments(tmp_path):
    at = str(tmp_path)
    with pytest.raises(TypeError, match="either `line_count`, samples per file, or `num_shards`"):
        common.convert(at, samples(1), 10, "train", num_shards=2)
    with pytest.raises(TypeError, match="either `line_count`"):
        common.convert(at, samples(1), name_prefix="train")
    with pytest.raises(TypeError, match="`name_prefix` is missing"):
        common.convert(at, samples(1), 10)
    with pytest.raises(TypeError, match="are aliases and must not differ"):
        common.convert(at, samples(1), 10, "a", num_prefix="b")
    with pytest.raises(ValueError, match="`line_count` must be at least 1, not 0"):
        common.convert(at, samples(1), 0, "train")
    with pytest.raises(ValueError, match="folders go into `output_path`"):
        common.convert(at, samples(1), 1, "a/train")
    assert files_of(tmp_path) == []


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 95])
def test_split_and_cluster_files_reader_give_every_sample_once(tmp_path, count):
    suffix = str(tmp_path / "part" / "train-%05d.pickle")
    common.split(samples(count), 10, suffix)
    total = max(1, -(-count // 10))
    assert files_of(tmp_path / "part") == [f"train-{i:05d}.pickle" for i in range(total)]
    found = []
    for trainer in range(3):
        found += common.cluster_files_reader(str(tmp_path / "part" / "*.pickle"), 3, trainer)()
    assert sorted(found) == list(samples(count)())


def test_split_writes_to_the_working_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common.split(samples(3), 2)
    assert files_of(tmp_path) == ["00000.pickle", "00001.pickle"]


def test_split_again_leaves_no_file_of_the_longer_one(tmp_path):
    suffix = str(tmp_path / "train-%05d.pickle")
    (tmp_path / "train-9.pickle").write_text("keep")
    common.split(samples(50), 10, suffix)
    common.split(samples(15), 10, suffix)
    assert files_of(tmp_path) == ["train-00000.pickle", "train-00001.pickle", "train-9.pickle"]


def test_split_into_numbered_folders_leaves_no_file_of_the_longer_one(tmp_path):
    suffix = str(tmp_path / "%05d" / "data.pickle")
    common.split(samples(50), 10, suffix)
    common.split(samples(15), 10, suffix)
    found = sorted(glob.glob(str(tmp_path / "*" / "*")))
    assert found == [suffix % 0, suffix % 1]


def test_a_failed_split_keeps_existing_files(tmp_path):
    suffix = str(tmp_path / "%05d.pickle")
    common.split(samples(50), 10, suffix)
    before = {name: (tmp_path / name).read_bytes() for name in files_of(tmp_path)}

    def failing():
        yield from range(35)
        raise KeyError("bad sample")

    with pytest.raises(KeyError):
        common.split(failing, 10, suffix)
    assert {name: (tmp_path / name).read_bytes() for name in files_of(tmp_path)} == before


def test_marshal_dumps_and_loads_as_the_documents_have_it(tmp_path):
    suffix = str(tmp_path / "train-%05d.pickle")
    common.split(reader=samples(25), line_count=10, suffix=suffix, dumper=marshal.dump)
    with open(tmp_path / "train-00002.pickle", "rb") as file:
        assert marshal.load(file) == list(samples(25)())[20:]
    reader = common.cluster_files_reader(str(tmp_path / "*.pickle"), trainer_count=2, train_id=1, loader=marshal.load)
    assert list(reader()) == list(samples(25)())[10:20]
    positional = common.cluster_files_reader(str(tmp_path / "*.pickle"), 2, 1, marshal.load)
    assert list(positional()) == list(reader())


@pytest.mark.parametrize(
    "value", [np.zeros(3), np.float32(1), np.float64(1), np.int64(1), bytearray(b"x"), memoryview(b"x"), object]
)
def test_marshal_refuses_values_it_would_store_wrongly(tmp_path, value):
    for nested in [value, (1, [value]), {"a": {"b": value}}]:
        with pytest.raises(TypeError, match="marshal cannot store a .* so that it comes back as one"):
            common.split([nested], 1, str(tmp_path / "%05d"), marshal.dump)
        assert files_of(tmp_path) == []


def test_marshal_stores_values_it_can_restore(tmp_path):
    values = [None, True, 1, 2.5, 3j, "é", b"\0", (1, [2]), {"a": {3, 4}}, frozenset([5]), ...]
    common.split(lambda: iter(values), 100, str(tmp_path / "%05d"), marshal.dump)
    assert list(common.cluster_files_reader(str(tmp_path / "*"), 1, 0, marshal.load)()) == values


def test_a_dumper_is_called_by_position_with_an_open_file(tmp_path):
    def dump(values, file, /):
        file.write(repr(values).encode())

    common.split(samples(1), 5, str(tmp_path / "%d.txt"), dump)
    assert (tmp_path / "0.txt").read_text() == "[(0, [0.0])]"


def test_dumpers_and_loaders_with_the_documents_names_are_called_by_them(tmp_path):
    def dump(file, *, obj):
        file.write(repr(obj).encode())

    def load(mode="text", *, f):
        return [mode, f.read().decode()]

    common.split(samples(1), 5, str(tmp_path / "%d.txt"), dumper=dump)
    assert (tmp_path / "0.txt").read_text() == "[(0, [0.0])]"
    reader = common.cluster_files_reader(str(tmp_path / "*.txt"), 1, 0, loader=load)
    assert list(reader()) == ["text", "[(0, [0.0])]"]


def test_a_dumper_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(AttributeError):
        common.split(lambda: iter([lambda: None]), 1, str(tmp_path / "%05d.pickle"))
    assert files_of(tmp_path) == []


@pytest.mark.parametrize("suffix", ["train.pickle", "%s-%s", "100%"])
def test_split_needs_a_place_for_the_number(suffix):
    with pytest.raises(ValueError, match="`suffix` needs one `%05d`"):
        common.split(samples(1), 1, suffix)


def test_cluster_files_reader_refuses_wrong_numbers(tmp_path):
    for trainer_id in (-1, 2):
        with pytest.raises(ValueError, match="is not one of 2 trainers"):
            common.cluster_files_reader("*", 2, trainer_id)
    with pytest.raises(TypeError, match="`trainer_id` is missing"):
        common.cluster_files_reader("*", 2)
    with pytest.raises(FileNotFoundError, match="no file matches"):
        list(common.cluster_files_reader(str(tmp_path / "*"), 2, 0)())


def test_more_trainers_than_files_gives_some_nothing(tmp_path):
    common.split(samples(5), 10, str(tmp_path / "%05d"))
    assert glob.glob(str(tmp_path / "*"))
    assert list(common.cluster_files_reader(str(tmp_path / "*"), 2, 1)()) == []


@pytest.mark.parametrize(
    ("environment", "home"),
    [
        ({"HOME": "/home/u"}, "/home/u/.cache/paddle/dataset"),
        ({"PADDLE_CLOUD_CURRENT_DATACENTER": "dc1"}, "/pfs/dc1/public/dataset"),
        ({"PADDLE_CLOUD_CURRENT_DATACENTER": "dc1", "DATA_HOME": "/mine"}, "/mine"),
    ],
)
def test_data_home_is_the_public_folder_inside_a_job(run_python, environment, home):
    program = "import paddle.v2.dataset.common as common; print(common.DATA_HOME)"
    assert run_python(program, **environment).splitlines()[-1] == home
