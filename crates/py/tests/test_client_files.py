"""The file service through `Client.files` and `AsyncClient.files`, on the real embedded server."""

import asyncio
import os
import stat

import pytest
from embedded import LIMIT_SECONDS, home  # noqa: F401

import paddlecloud
from paddlecloud import errors


@pytest.fixture
def files(home):  # noqa: F811
    return paddlecloud.Client().files


@pytest.fixture
def folder(home, request):  # noqa: F811
    """A folder of this test's own on the cluster."""
    client = paddlecloud.Client()
    path = f"{client.whoami_get().home}/{request.node.name}"
    client.files.mkdir(path)
    return path


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "tree"
    (top / "deep").mkdir(parents=True)
    (top / "a.txt").write_bytes(b"0123456789")
    (top / "deep" / "big.bin").write_bytes(bytes(range(256)) * 16384)
    (top / "run.sh").write_bytes(b"#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    return top


def test_a_folder_survives_upload_and_download(files, folder, tree, tmp_path):
    sent = files.upload(tree, f"{folder}/new/tree")
    assert (sent.transferred, sent.unchanged) == (3, 0)
    found = {entry.path: entry for entry in files.listdir(f"{folder}/new/tree", recursive=True)}
    assert list(found) == ["a.txt", "deep", "deep/big.bin", "run.sh"]
    assert found["deep"].kind == "folder" and found["deep/big.bin"].size == 4 << 20
    assert found["run.sh"].executable and not found["a.txt"].executable
    assert files.upload(tree, f"{folder}/new/tree").unchanged == 3

    back = tmp_path / "here" / "back"
    assert files.download(f"{folder}/new/tree", back).transferred == 3
    for name in ("a.txt", "deep/big.bin", "run.sh"):
        assert (back / name).read_bytes() == (tree / name).read_bytes()
    (back / "a.txt").write_bytes(b"changed here")
    assert files.download(f"{folder}/new/tree", back, overwrite=False).kept == 1
    assert (back / "a.txt").read_bytes() == b"changed here"


def test_a_pipe_is_not_replaced_by_a_file(files, folder, tree, tmp_path):
    files.upload(tree, f"{folder}/tree")
    here = tmp_path / "here"
    here.mkdir()
    os.mkfifo(here / "a.txt")
    for remote, local in [("tree/a.txt", here / "a.txt"), ("tree", here)]:
        with pytest.raises(errors.TransferFailedError, match="a.txt` is "):
            files.download(f"{folder}/{remote}", local)
    assert stat.S_ISFIFO((here / "a.txt").stat().st_mode)
    assert (here / "run.sh").read_bytes() == b"#!/bin/sh\n", "the others came"


def test_ranges_of_a_file_are_read(files, folder, tree):
    path = f"{folder}/a.txt"
    files.upload(tree / "a.txt", path)
    assert files.read(path) == b"0123456789"
    assert files.read(path, 3, 6) == b"345"
    assert files.read(path, 8) == b"89"
    assert files.read(path, 4, 4) == b""
    with pytest.raises(ValueError, match="negative"):
        files.read(path, -1)


def test_files_are_moved_copied_counted_and_removed(files, folder, tree):
    files.upload(tree, f"{folder}/one")
    files.rename(f"{folder}/one", f"{folder}/two")
    assert not files.exists(f"{folder}/one") and files.exists(f"{folder}/two")
    assert files.copy(f"{folder}/two", f"{folder}/three").files == 3
    assert files.usage(folder).files == 6
    assert files.quota().files_used >= 6
    assert [entry.path for entry in files.glob(f"{folder}/*/a.txt")] == [
        f"{folder}/three/a.txt",
        f"{folder}/two/a.txt",
    ]
    with pytest.raises(errors.RefusedError):
        files.remove(f"{folder}/two")
    gone = files.remove([f"{folder}/two", f"{folder}/three"], recursive=True)
    assert [item.usage.files for item in gone] == [3, 3]
    assert files.listdir(folder) == []


def test_errors_are_reported_by_kind(files, folder, tmp_path):
    with pytest.raises(errors.NotFoundError) as found:
        files.stat(f"{folder}/nothing")
    assert found.value.code == 404
    with pytest.raises(ValueError, match="/etc/passwd"):
        files.stat("/etc/passwd")
    with pytest.raises(errors.PackageError, match="cannot use"):
        files.upload(tmp_path / "nothing", f"{folder}/x")
    with pytest.raises(errors.RefusedError):
        files.mkdir(f"{folder}/a/b")
    files.mkdir(f"{folder}/a/b", parents=True)


def test_many_files_are_read_at_once(home, folder, tree):  # noqa: F811
    async def read():
        files = paddlecloud.AsyncClient().files
        await files.upload(tree, folder)
        names = [entry.path for entry in await files.listdir(folder) if entry.kind == "file"]
        return dict(zip(names, await asyncio.gather(*(files.read(f"{folder}/{name}") for name in names))))

    assert asyncio.run(asyncio.wait_for(read(), LIMIT_SECONDS)) == {
        "a.txt": b"0123456789",
        "run.sh": b"#!/bin/sh\n",
    }


def test_the_embedded_server_refuses_to_publish(files, folder, tree):
    path = f"{folder}/a.txt"
    files.upload(tree / "a.txt", path)
    with pytest.raises(errors.ForbiddenError) as refused:
        files.publish(path, lifetime=3600)
    assert "no address that others can reach" in str(refused.value)
    assert files.published() == []
