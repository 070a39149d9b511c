"""The operations of the file service: what is sent for each, and how its reply is read.

`_derived` makes the methods of `Client.files` and `AsyncClient.files` from the class `FileOperations`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from paddlecloud import errors, views
from paddlecloud._operations import Operation, each, message, nothing, operation, request, seconds

T = TypeVar("T")


def _call(name: str, read: Callable[[Any], T], /, **arguments: Any) -> Operation[T]:
    return operation("files", read, call={"do": name, **arguments})


class FileOperations:
    """Every operation on files. `self` is the client's view of them, which none of them needs."""

    def stat(self, path: str, *, digest: bool = False) -> Operation[views.FileInfo]:
        """What is at a path; with `digest` also the BLAKE3 of a file's content."""
        return _call("stat", views.FileInfo.of, path=path, digest=bool(digest))

    def stats(
        self, folder: str, paths: Iterable[str], *, digest: bool = False
    ) -> Operation[list[views.FileInfo | None]]:
        """What some paths below a folder are, in the order asked; `None` for what is not there."""
        body = {"path": folder, "files": list(paths), "digest": bool(digest)}
        return request("POST", "/api/v1/pfs/stats", message(_each_or_none), json=body)

    def listdir(
        self, path: str, *, recursive: bool = False, digests: bool = False
    ) -> Operation[list[views.FileInfo]]:
        """What is in a folder, in order, folders before what they hold; paths are relative to it."""
        options = {"recursive": bool(recursive), "digests": bool(digests)}
        return _call("list", each(views.FileInfo), path=path, **options)

    def glob(self, pattern: str) -> Operation[list[views.FileInfo]]:
        """Everything that matches a pattern such as `/pfs/dc1/home/me/*.txt`, in order."""
        return _call("glob", each(views.FileInfo), pattern=pattern)

    def mkdir(self, path: str, *, parents: bool = False) -> Operation[None]:
        """Makes a folder; with `parents` also those on the way, and one that is there is fine."""
        return _call("mkdir", nothing, path=path, parents=bool(parents))

    def remove(
        self, paths: str | Iterable[str], *, recursive: bool = False, dry_run: bool = False
    ) -> Operation[list[views.Removed]]:
        """Removes files, links and, with `recursive`, folders with all they hold."""
        wanted = [paths] if isinstance(paths, str) else list(paths)
        return _call("remove", _removed, paths=wanted, recursive=bool(recursive), dry_run=bool(dry_run))

    def rmdir(self, path: str) -> Operation[None]:
        """Removes a folder that is empty, and nothing else."""
        body = {"paths": [path], "empty_folders": True}
        return request("POST", "/api/v1/pfs/remove", message(_one_removed), json=body)

    def rename(self, source: str, target: str, *, overwrite: bool = True) -> Operation[None]:
        """Gives a file or folder another place, in one step."""
        return _call("rename", nothing, source=source, target=target, overwrite=bool(overwrite))

    def copy(self, source: str, target: str, *, overwrite: bool = True) -> Operation[views.Copied]:
        """Copies a file or a folder inside the storage."""
        return _call("copy", views.Copied.of, source=source, target=target, overwrite=bool(overwrite))

    def usage(self, path: str) -> Operation[views.Usage]:
        """Bytes, files and folders below a path."""
        return _call("usage", views.Usage.of, path=path)

    def quota(self) -> Operation[views.Storage]:
        """What the caller stores and may store."""
        return _call("quota", views.Storage.of)

    def uploads(self) -> Operation[list[views.UnfinishedUpload]]:
        """Uploads that were begun and not ended, the one that was longest left alone first."""
        return request("GET", "/api/v1/pfs/uploads", message(each(views.UnfinishedUpload)))

    def drop_upload(self, upload: str) -> Operation[None]:
        """Gives an unfinished upload up, by its id, with all that arrived; its room is free again."""
        return request("DELETE", f"/api/v1/pfs/uploads/{upload}", nothing)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Operation[bytes]:
        """A file's bytes, or those from `start` to before `end`; all are of one version of the file."""
        if start < 0 or (end is not None and end < 0):
            raise ValueError("a range begins at 0 or later; negative places are not known before a file is read")
        return _call("read", bytes, path=path, start=start, end=end)

    def upload(
        self,
        local: str | os.PathLike[str],
        remote: str,
        *,
        overwrite: bool = True,
        checksum: bool = False,
    ) -> Operation[views.Transferred]:
        """Sends a file or folder, which becomes exactly `remote`; folders on the way are made.

        A file of the same size and time is taken for the same, unless `checksum` compares contents.
        """
        options = {"overwrite": bool(overwrite), "checksum": bool(checksum)}
        return _call("upload", _transferred, local=os.path.abspath(os.fspath(local)), remote=remote, **options)

    def download(
        self,
        remote: str,
        local: str | os.PathLike[str],
        *,
        overwrite: bool = True,
        checksum: bool = False,
    ) -> Operation[views.Transferred]:
        """Fetches a file or folder, which becomes exactly `local`; folders on the way are made."""
        options = {"overwrite": bool(overwrite), "checksum": bool(checksum)}
        return _call("download", _transferred, remote=remote, local=os.path.abspath(os.fspath(local)), **options)

    def publish(
        self, path: str, *, lifetime: float | timedelta = timedelta(days=7)
    ) -> Operation[views.Share]:
        """Makes a link that anybody can read the file by, for a while.

        The embedded server has no address that others could reach, and refuses.
        """
        return _call("publish", views.Share.of, path=path, seconds=int(seconds("lifetime", lifetime) or 0))

    def published(self) -> Operation[list[views.Share]]:
        """The links that still work."""
        return _call("published", each(views.Share))

    def unpublish(self, share: str) -> Operation[None]:
        """Takes a link back, by its id."""
        return _call("unpublish", nothing, id=share)

    def read_published(self, link: str) -> Operation[bytes]:
        """The file that a link of this server was given out for."""
        _, way, token = link.partition("/api/v1/pfs/shared/")
        if not token:
            raise ValueError(f"`{link}` is no link to a published file")
        return request("GET", way + token, bytes)

    def fsck(self) -> Operation[views.Checked]:
        """Reads every file the server knows the digest of, and names those that changed; for administrators."""
        return _call("fsck", views.Checked.of)


def _removed(items: list[dict[str, Any]]) -> list[views.Removed]:
    """One path that cannot go does not stop the others; the first such is raised when all are done."""
    for item in items:
        if (refusal := item.get("error")) is not None:
            hints = refusal.get("hints", ())
            raise errors._made("refused", refusal["code"], refusal["error"], refusal["msg"], hints)
    return [views.Removed.of(item) for item in items]


def _one_removed(items: list[dict[str, Any]]) -> None:
    _removed(items)


def _transferred(summary: dict[str, Any]) -> views.Transferred:
    failures = [(failure["path"], failure["message"]) for failure in summary["failures"]]
    if failures:
        path, reason = failures[0]
        others = f", and {len(failures) - 1} more did not get there" if len(failures) > 1 else ""
        raise errors.TransferFailedError(f"cannot transfer `{path}`: {reason}{others}", failures=failures)
    return views.Transferred.of(summary)


def _each_or_none(items: list[dict[str, Any] | None]) -> list[views.FileInfo | None]:
    return [None if item is None else views.FileInfo.of(item) for item in items]
