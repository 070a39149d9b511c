"""The operations of the file service: what is sent for each, and how its reply is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from paddlecloud import errors, views
from paddlecloud._operations import Operation, each, nothing, operation, seconds

T = TypeVar("T")
Local = str | os.PathLike[str]


def _call(name: str, read: Callable[[Any], T], /, **arguments: Any) -> Operation[T]:
    return operation("files", read, call={"do": name, **arguments})


def stat(path: str, digest: bool) -> Operation[views.FileInfo]:
    return _call("stat", views.FileInfo.of, path=path, digest=bool(digest))


def listing(path: str, recursive: bool, digests: bool) -> Operation[list[views.FileInfo]]:
    return _call(
        "list", each(views.FileInfo), path=path, recursive=bool(recursive), digests=bool(digests)
    )


def glob(pattern: str) -> Operation[list[views.FileInfo]]:
    return _call("glob", each(views.FileInfo), pattern=pattern)


def mkdir(path: str, parents: bool) -> Operation[None]:
    return _call("mkdir", nothing, path=path, parents=bool(parents))


def remove(paths: Iterable[str], recursive: bool, dry_run: bool) -> Operation[list[views.Removed]]:
    if isinstance(paths, str):
        paths = [paths]
    return _call("remove", _removed, paths=list(paths), recursive=bool(recursive), dry_run=bool(dry_run))


def rename(source: str, target: str, overwrite: bool) -> Operation[None]:
    return _call("rename", nothing, source=source, target=target, overwrite=bool(overwrite))


def copy(source: str, target: str, overwrite: bool) -> Operation[views.Copied]:
    return _call("copy", views.Copied.of, source=source, target=target, overwrite=bool(overwrite))


def usage(path: str) -> Operation[views.Usage]:
    return _call("usage", views.Usage.of, path=path)


def quota() -> Operation[views.Storage]:
    return _call("quota", views.Storage.of)


def read(path: str, start: int, end: int | None) -> Operation[bytes]:
    if start < 0 or (end is not None and end < 0):
        raise ValueError("a range begins at 0 or later; negative places are not known before a file is read")
    return _call("read", bytes, path=path, start=start, end=end)


def upload(local: Local, remote: str, overwrite: bool, checksum: bool) -> Operation[views.Transferred]:
    place = os.path.abspath(os.fspath(local))
    return _call(
        "upload", _transferred, local=place, remote=remote, overwrite=bool(overwrite), checksum=bool(checksum)
    )


def download(remote: str, local: Local, overwrite: bool, checksum: bool) -> Operation[views.Transferred]:
    place = os.path.abspath(os.fspath(local))
    return _call(
        "download", _transferred, remote=remote, local=place, overwrite=bool(overwrite), checksum=bool(checksum)
    )


def publish(path: str, lifetime: float | timedelta) -> Operation[views.Share]:
    return _call("publish", views.Share.of, path=path, seconds=int(seconds("lifetime", lifetime) or 0))


def published() -> Operation[list[views.Share]]:
    return _call("published", each(views.Share))


def unpublish(share: str) -> Operation[None]:
    return _call("unpublish", nothing, id=share)


def _removed(items: list[dict[str, Any]]) -> list[views.Removed]:
    """One path that cannot go does not stop the others; the first such is raised when all are done."""
    for item in items:
        if (refusal := item.get("error")) is not None:
            hints = refusal.get("hints", ())
            raise errors._made("refused", refusal["code"], refusal["error"], refusal["msg"], hints)
    return [views.Removed.of(item) for item in items]


def _transferred(summary: dict[str, Any]) -> views.Transferred:
    failures = [(failure["path"], failure["message"]) for failure in summary["failures"]]
    if failures:
        path, reason = failures[0]
        others = f", and {len(failures) - 1} more did not get there" if len(failures) > 1 else ""
        raise errors.TransferFailedError(f"cannot transfer `{path}`: {reason}{others}", failures=failures)
    return views.Transferred.of(summary)
