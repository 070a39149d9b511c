"""`pfs://` through fsspec, on the real embedded server."""

import errno
import pickle

import pytest
from embedded import home  # noqa: F401

import paddlecloud

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def pfs(home):  # noqa: F811
    return fsspec.filesystem("pfs")


@pytest.fixture
def folder(pfs, request):
    """A folder of this test's own on the cluster."""
    path = f"{pfs.client.whoami_get().home}/{request.node.name}"
    pfs.mkdir(path)
    return path


@pytest.fixture
def tree(pfs, folder):
    for name in ("a.csv", "b.csv", "deep/c.csv", "deep/er/d.txt"):
        pfs.pipe_file(f"{folder}/{name}", name.encode())
    return folder


def test_fsspec_finds_the_protocol_by_itself(run_python):
    program = "import fsspec; print(fsspec.get_filesystem_class('pfs').__module__)"
    assert run_python(program) == "paddlecloud.fs\n"


@pytest.mark.parametrize(
    "written",
    ["pfs://dc1/home/me/a", "/pfs/dc1/home/me/a", "pfs:///pfs/dc1/home/me/a", "pfs://dc1/home/me/a/", "dc1/home/me/a"],
)
def test_every_way_to_write_a_path_means_the_same(pfs, written):
    assert pfs._strip_protocol(written) == "/pfs/dc1/home/me/a"
    assert pfs.unstrip_protocol(written) == "pfs://dc1/home/me/a"


def test_text_and_bytes_are_written_and_read(pfs, folder):
    address = pfs.unstrip_protocol(f"{folder}/new/words.txt")
    with fsspec.open(address, "w") as file:
        file.write("one\ntwo\n")
    with fsspec.open(address) as file:
        assert file.read() == b"one\ntwo\n"
    with fsspec.open(address, "r") as file:
        assert [line.strip() for line in file] == ["one", "two"]
    with fsspec.open(address + ".gz", "wb", compression="gzip") as file:
        file.write(b"packed" * 1000)
    with fsspec.open(address + ".gz", compression="gzip") as file:
        assert file.read() == b"packed" * 1000


def test_a_large_file_is_read_in_ranges(pfs, folder):
    content = bytes(range(256)) * 40_000
    path = f"{folder}/big"
    with pfs.open(path, "wb", block_size=1 << 20) as file:
        for start in range(0, len(content), 700_001):
            file.write(content[start : start + 700_001])
    assert pfs.size(path) == len(content)
    with pfs.open(path, block_size=64 << 10, cache_type="bytes") as file:
        for place in (0, 5_000_000, 123, len(content) - 3):
            file.seek(place)
            assert file.read(1000) == content[place : place + 1000]
        assert file.seek(-5, 2) == len(content) - 5
        assert file.read() == content[-5:]
    assert pfs.cat_file(path, 10, 20) == content[10:20]
    assert pfs.cat_file(path, -20, -10) == content[-20:-10]
    assert pfs.cat_ranges([path, path], [0, 7], [3, 9]) == [content[:3], content[7:9]]


def test_a_name_appears_when_the_file_is_whole(pfs, folder):
    path = f"{folder}/model"
    with pfs.open(path, "wb", block_size=1 << 20) as file:
        file.write(b"1" * (3 << 20))
        assert not pfs.exists(path)
    with pfs.open(path, "wb") as file:
        file.write(b"2")
        assert pfs.cat_file(path)[:1] == b"1"
    assert pfs.cat_file(path) == b"2"


def test_a_file_whose_block_raises_is_not_published(pfs, folder):
    with pytest.raises(ZeroDivisionError), pfs.open(f"{folder}/half", "wb") as file:
        file.write(b"half")
        1 / 0
    assert pfs.ls(folder) == []


def test_a_transaction_publishes_all_or_nothing(pfs, folder):
    with pfs.transaction:
        for name in ("a", "b"):
            with pfs.open(f"{folder}/{name}", "wb") as file:
                file.write(name.encode())
        assert pfs.ls(folder) == []
    assert pfs.ls(folder, detail=False) == [f"{folder}/a", f"{folder}/b"]
    with pytest.raises(ZeroDivisionError), pfs.transaction:
        with pfs.open(f"{folder}/c", "wb") as file:
            file.write(b"c")
        1 / 0
    assert not pfs.exists(f"{folder}/c")


def test_an_existing_file_is_not_created_again(pfs, tree):
    with pytest.raises(FileExistsError):
        pfs.open(f"{tree}/a.csv", "xb")
    with pytest.raises(FileExistsError):
        pfs.mkdir(f"{tree}/deep")
    with pytest.raises(FileExistsError):
        pfs.makedirs(f"{tree}/deep")
    pfs.makedirs(f"{tree}/deep", exist_ok=True)
    with pytest.raises(ValueError, match="cannot be opened with mode `ab`"):
        pfs.open(f"{tree}/a.csv", "ab")


def test_mode_create_does_not_replace_a_file(pfs, tree, tmp_path):
    before = pfs.cat_file(f"{tree}/a.csv")
    other = tmp_path / "other.csv"
    other.write_bytes(b"other")
    with pytest.raises(FileExistsError):
        pfs.put_file(other, f"{tree}/a.csv", mode="create")
    assert pfs.cat_file(f"{tree}/a.csv") == before
    pfs.put_file(other, f"{tree}/new.csv", mode="create")
    with pytest.raises(FileExistsError):
        pfs.put_file(other, f"{tree}/new.csv", mode="create")


def test_a_file_that_changes_while_it_is_read_is_reported(pfs, folder):
    path = f"{folder}/changing"
    pfs.pipe_file(path, b"a" * 300_000)
    with pfs.open(path, block_size=1000, cache_type="none") as file:
        assert file.read(10) == b"a" * 10
        pfs.pipe_file(path, b"b" * 400_000)
        with pytest.raises(OSError, match="changed while it was read") as found:
            file.read(10)
    assert found.value.errno == errno.ESTALE


def test_folders_are_listed_searched_and_measured(pfs, tree):
    names = [name.removeprefix(tree + "/") for name in pfs.ls(tree, detail=False)]
    assert names == ["a.csv", "b.csv", "deep"]
    assert pfs.info(f"{tree}/deep")["type"] == "directory" and pfs.isdir(f"{tree}/deep")
    assert pfs.info(f"{tree}/a.csv")["size"] == 5 and pfs.isfile(f"{tree}/a.csv")
    assert [name.removeprefix(tree + "/") for name in pfs.glob(f"{tree}/**/*.csv")] == ["a.csv", "b.csv", "deep/c.csv"]
    assert pfs.glob(f"pfs://{tree.removeprefix('/pfs/')}/?.csv") == [f"{tree}/a.csv", f"{tree}/b.csv"]
    assert pfs.find(tree)[-1] == f"{tree}/deep/er/d.txt"
    assert pfs.du(tree) == 5 + 5 + 10 + 13
    with fsspec.open_files(pfs.unstrip_protocol(f"{tree}/*.csv")) as files:
        assert [file.read() for file in files] == [b"a.csv", b"b.csv"]
    assert pfs.modified(f"{tree}/a.csv").tzinfo is not None


def test_files_are_copied_moved_and_removed(pfs, tree):
    pfs.cp(f"{tree}/deep", f"{tree}/copy", recursive=True)
    assert pfs.cat_file(f"{tree}/copy/er/d.txt") == b"deep/er/d.txt"
    pfs.mv(f"{tree}/a.csv", f"{tree}/moved.csv")
    pfs.mv(f"{tree}/b.csv", f"{tree}/copy")
    assert pfs.exists(f"{tree}/copy/b.csv") and not pfs.exists(f"{tree}/a.csv")
    with pytest.raises(OSError, match="not empty") as found:
        pfs.rmdir(f"{tree}/copy")
    assert found.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError, match="not a folder"):
        pfs.rmdir(f"{tree}/copy/b.csv")
    with pytest.raises(FileNotFoundError):
        pfs.rmdir(f"{tree}/nothing")
    assert pfs.exists(f"{tree}/copy/b.csv")
    with pytest.raises(OSError):
        pfs.rm(f"{tree}/copy")
    pfs.rm(f"{tree}/copy", recursive=True)
    pfs.rm(f"{tree}/*.csv")
    assert pfs.ls(tree, detail=False) == [f"{tree}/deep"]
    pfs.mkdir(f"{tree}/none")
    pfs.rmdir(f"{tree}/none")
    assert not pfs.exists(f"{tree}/none")


def test_rmdir_refuses_a_folder_that_is_no_longer_empty(pfs, tree, monkeypatch):
    monkeypatch.setattr(pfs, "ls", lambda *_, **__: [])
    with pytest.raises(OSError) as found:
        pfs.rmdir(f"{tree}/deep")
    assert found.value.errno == errno.ENOTEMPTY
    assert pfs.cat_file(f"{tree}/deep/c.csv") == b"deep/c.csv"


def test_files_survive_put_and_get(pfs, folder, tmp_path):
    here = tmp_path / "here"
    (here / "deep").mkdir(parents=True)
    (here / "a").write_bytes(b"a" * 100_000)
    (here / "deep" / "b").write_bytes(b"b")
    pfs.put(str(here), f"{folder}/there", recursive=True)
    pfs.get(f"{folder}/there", str(tmp_path / "back"), recursive=True)
    assert (tmp_path / "back" / "a").read_bytes() == b"a" * 100_000
    assert (tmp_path / "back" / "deep" / "b").read_bytes() == b"b"
    before = pfs.ukey(f"{folder}/there/a")
    pfs.pipe_file(f"{folder}/there/a", b"new")
    assert pfs.ukey(f"{folder}/there/a") != before


def test_missing_and_forbidden_paths_raise_the_errors_of_files(pfs, folder):
    with pytest.raises(FileNotFoundError) as found:
        pfs.open(f"{folder}/nothing")
    assert found.value.filename == f"{folder}/nothing"
    assert not pfs.exists(f"{folder}/nothing")
    with pytest.raises(FileNotFoundError):
        pfs.ls("/pfs/nowhere/home/nobody")
    with pytest.raises(IsADirectoryError):
        pfs.open(folder)


def test_a_server_that_others_cannot_reach_refuses_to_sign(pfs, tree):
    with pytest.raises(PermissionError, match="no address that others can reach"):
        pfs.sign(f"{tree}/a.csv", expiration=60)


def test_a_file_system_travels_to_another_process(pfs, tree):
    again = pickle.loads(pickle.dumps(pfs))
    assert again.cat_file(f"{tree}/a.csv") == b"a.csv"
    assert isinstance(again.client, paddlecloud.Client)
