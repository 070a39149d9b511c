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
    """Every operation on files. `self` is the client's `files`, which no operation uses."""

    def stat(self, path: str, *, digest: bool = False) -> Operation[views.FileInfo]:
        """Returns the metadata of a path; with `digest` also the BLAKE3 digest of a file."""
        return _call("stat", views.FileInfo.of, path=path, digest=bool(digest))

    def stats(
        self, folder: str, paths: Iterable[str], *, digest: bool = False
    ) -> Operation[list[views.FileInfo | None]]:
        """Returns the metadata of paths below a folder, in the order asked; `None` for a missing one."""
        body = {"path": folder, "files": list(paths), "digest": bool(digest)}
        return request("POST", "/api/v1/pfs/stats", message(_each_or_none), json=body)

    def listdir(
        self, path: str, *, recursive: bool = False, digests: bool = False
    ) -> Operation[list[views.FileInfo]]:
        """Lists a folder, sorted, each folder before its contents; paths are relative to it."""
        options = {"recursive": bool(recursive), "digests": bool(digests)}
        return _call("list", each(views.FileInfo), path=path, **options)

    def glob(self, pattern: str) -> Operation[list[views.FileInfo]]:
        """Lists everything that matches a pattern such as `/pfs/dc1/home/me/*.txt`, sorted."""
        return _call("glob", each(views.FileInfo), pattern=pattern)

    def mkdir(self, path: str, *, parents: bool = False) -> Operation[None]:
        """Creates a folder; with `parents` also its parents, and an existing folder is not an error."""
        return _call("mkdir", nothing, path=path, parents=bool(parents))

    def remove(
        self, paths: str | Iterable[str], *, recursive: bool = False, dry_run: bool = False
    ) -> Operation[list[views.Removed]]:
        """Removes files, links and, with `recursive`, folders with their contents."""
        wanted = [paths] if isinstance(paths, str) else list(paths)
        return _call("remove", _removed, paths=wanted, recursive=bool(recursive), dry_run=bool(dry_run))

    def rmdir(self, path: str) -> Operation[None]:
        """Removes an empty folder, and nothing else."""
        body = {"paths": [path], "empty_folders": True}
        return request("POST", "/api/v1/pfs/remove", message(_one_removed), json=body)

    def rename(self, source: str, target: str, *, overwrite: bool = True) -> Operation[None]:
        """Moves a file or folder, in one step."""
        return _call("rename", nothing, source=source, target=target, overwrite=bool(overwrite))

    def copy(self, source: str, target: str, *, overwrite: bool = True) -> Operation[views.Copied]:
        """Copies a file or a folder inside the storage."""
        return _call("copy", views.Copied.of, source=source, target=target, overwrite=bool(overwrite))

    def usage(self, path: str) -> Operation[views.Usage]:
        """Counts bytes, files and folders below a path."""
        return _call("usage", views.Usage.of, path=path)

    def quota(self) -> Operation[views.Storage]:
        """Returns the caller's storage usage and limits."""
        return _call("quota", views.Storage.of)

    def uploads(self) -> Operation[list[views.UnfinishedUpload]]:
        """Lists unfinished uploads, the least recently used first."""
        return request("GET", "/api/v1/pfs/uploads", message(each(views.UnfinishedUpload)))

    def drop_upload(self, upload: str) -> Operation[None]:
        """Discards an unfinished upload, by its id, with everything received, and frees its space."""
        return request("DELETE", f"/api/v1/pfs/uploads/{upload}", nothing)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Operation[bytes]:
        """Returns a file's bytes from `start` up to, not including, `end`; all from one version of the file."""
        if start < 0 or (end is not None and end < 0):
            raise ValueError("a range starts at 0 or later; negative offsets are not supported")
        return _call("read", bytes, path=path, start=start, end=end)

    def upload(
        self,
        local: str | os.PathLike[str],
        remote: str,
        *,
        overwrite: bool = True,
        checksum: bool = False,
    ) -> Operation[views.Transferred]:
        """Uploads a file or folder as exactly `remote`; parent folders are created.

        A file with the same size and time counts as unchanged, unless `checksum` compares contents.
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
        """Downloads a file or folder as exactly `local`; parent folders are created."""
        options = {"overwrite": bool(overwrite), "checksum": bool(checksum)}
        return _call("download", _transferred, remote=remote, local=os.path.abspath(os.fspath(local)), **options)

    def publish(
        self, path: str, *, lifetime: float | timedelta = timedelta(days=7)
    ) -> Operation[views.Share]:
        """Creates a link with which anyone can read the file for the given time.

        The embedded server has no address that others can reach, so it refuses.
        """
        return _call("publish", views.Share.of, path=path, seconds=int(seconds("lifetime", lifetime) or 0))

    def published(self) -> Operation[list[views.Share]]:
        """Lists the active links."""
        return _call("published", each(views.Share))

    def unpublish(self, share: str) -> Operation[None]:
        """Revokes a link, by its id."""
        return _call("unpublish", nothing, id=share)

    def read_published(self, link: str) -> Operation[bytes]:
        """Returns the file of a link of this server."""
        _, way, token = link.partition("/api/v1/pfs/shared/")
        if not token:
            raise ValueError(f"`{link}` is not a link to a published file")
        return request("GET", way + token, bytes)

    def fsck(self) -> Operation[views.Checked]:
        """Reads every file whose digest the server knows, and reports those that differ; for administrators."""
        return _call("fsck", views.Checked.of)


def _removed(items: list[dict[str, Any]]) -> list[views.Removed]:
    """A path that cannot be removed does not stop the others; the first error is raised at the end."""
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
        others = f", and {len(failures) - 1} more failed" if len(failures) > 1 else ""
        raise errors.TransferFailedError(f"cannot transfer `{path}`: {reason}{others}", failures=failures)
    return views.Transferred.of(summary)


def _each_or_none(items: list[dict[str, Any] | None]) -> list[views.FileInfo | None]:
    return [None if item is None else views.FileInfo.of(item) for item in items]
