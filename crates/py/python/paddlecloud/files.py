"""`Client.files` and `AsyncClient.files`: the file service, `/pfs/…`.

    client.files.upload("./data", "/pfs/dc1/home/me/data")
    for found in client.files.listdir("/pfs/dc1/home/me/data", recursive=True):
        print(found.path, found.size)

Transfers send and fetch only what differs, go on where they were after a lost connection, and check every byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Protocol, TypeVar

from paddlecloud import _file_operations as operations
from paddlecloud import views
from paddlecloud._operations import Operation
from paddlecloud.errors import NotFoundError

__all__ = ["AsyncFiles", "Files"]

T = TypeVar("T")
Local = str | os.PathLike[str]


class _Run(Protocol):
    def __call__(self, operation: Operation[T], /) -> T: ...


class _AsyncRun(Protocol):
    async def __call__(self, operation: Operation[T], /) -> T: ...


class Files:
    """The file service of one server. Paths of the cluster begin with `/pfs/`."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def stat(self, path: str, *, digest: bool = False) -> views.FileInfo:
        """What is at a path; with `digest` also the BLAKE3 of a file's content."""
        return self._run(operations.stat(path, digest))

    def exists(self, path: str) -> bool:
        """Whether there is anything at a path."""
        try:
            self.stat(path)
        except NotFoundError:
            return False
        return True

    def listdir(self, path: str, *, recursive: bool = False, digests: bool = False) -> list[views.FileInfo]:
        """What is in a folder, in order, folders before what they hold; paths are relative to it."""
        return self._run(operations.listing(path, recursive, digests))

    def glob(self, pattern: str) -> list[views.FileInfo]:
        """Everything that matches a pattern such as `/pfs/dc1/home/me/*.txt`, in order."""
        return self._run(operations.glob(pattern))

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Makes a folder; with `parents` also those on the way, and one that is there is fine."""
        self._run(operations.mkdir(path, parents))

    def remove(
        self, paths: str | Iterable[str], *, recursive: bool = False, dry_run: bool = False
    ) -> list[views.Removed]:
        """Removes files, links and, with `recursive`, folders with all they hold."""
        return self._run(operations.remove(paths, recursive, dry_run))

    def rename(self, source: str, target: str, *, overwrite: bool = True) -> None:
        """Gives a file or folder another place, in one step."""
        self._run(operations.rename(source, target, overwrite))

    def copy(self, source: str, target: str, *, overwrite: bool = True) -> views.Copied:
        """Copies a file or a folder inside the storage."""
        return self._run(operations.copy(source, target, overwrite))

    def usage(self, path: str) -> views.Usage:
        """Bytes, files and folders below a path."""
        return self._run(operations.usage(path))

    def quota(self) -> views.Storage:
        """What the caller stores and may store."""
        return self._run(operations.quota())

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """A file's bytes, or those from `start` to before `end`; all are of one version of the file."""
        return self._run(operations.read(path, start, end))

    def upload(
        self, local: Local, remote: str, *, overwrite: bool = True, checksum: bool = False
    ) -> views.Transferred:
        """Sends a file or folder, which becomes exactly `remote`; folders on the way are made.

        A file of the same size and time is taken for the same, unless `checksum` compares contents.
        """
        return self._run(operations.upload(local, remote, overwrite, checksum))

    def download(
        self, remote: str, local: Local, *, overwrite: bool = True, checksum: bool = False
    ) -> views.Transferred:
        """Fetches a file or folder, which becomes exactly `local`; folders on the way are made."""
        return self._run(operations.download(remote, local, overwrite, checksum))

    def publish(self, path: str, *, lifetime: float | timedelta = timedelta(days=7)) -> views.Share:
        """Makes a link that anybody can read the file by, for a while."""
        return self._run(operations.publish(path, lifetime))

    def published(self) -> list[views.Share]:
        """The links that still work."""
        return self._run(operations.published())

    def unpublish(self, share: str) -> None:
        """Takes a link back, by its id."""
        self._run(operations.unpublish(share))


class AsyncFiles:
    """The same as `Files`, for asyncio."""

    def __init__(self, run: _AsyncRun) -> None:
        self._run = run

    async def stat(self, path: str, *, digest: bool = False) -> views.FileInfo:
        """What is at a path; with `digest` also the BLAKE3 of a file's content."""
        return await self._run(operations.stat(path, digest))

    async def exists(self, path: str) -> bool:
        """Whether there is anything at a path."""
        try:
            await self.stat(path)
        except NotFoundError:
            return False
        return True

    async def listdir(
        self, path: str, *, recursive: bool = False, digests: bool = False
    ) -> list[views.FileInfo]:
        """What is in a folder, in order, folders before what they hold; paths are relative to it."""
        return await self._run(operations.listing(path, recursive, digests))

    async def glob(self, pattern: str) -> list[views.FileInfo]:
        """Everything that matches a pattern such as `/pfs/dc1/home/me/*.txt`, in order."""
        return await self._run(operations.glob(pattern))

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Makes a folder; with `parents` also those on the way, and one that is there is fine."""
        await self._run(operations.mkdir(path, parents))

    async def remove(
        self, paths: str | Iterable[str], *, recursive: bool = False, dry_run: bool = False
    ) -> list[views.Removed]:
        """Removes files, links and, with `recursive`, folders with all they hold."""
        return await self._run(operations.remove(paths, recursive, dry_run))

    async def rename(self, source: str, target: str, *, overwrite: bool = True) -> None:
        """Gives a file or folder another place, in one step."""
        await self._run(operations.rename(source, target, overwrite))

    async def copy(self, source: str, target: str, *, overwrite: bool = True) -> views.Copied:
        """Copies a file or a folder inside the storage."""
        return await self._run(operations.copy(source, target, overwrite))

    async def usage(self, path: str) -> views.Usage:
        """Bytes, files and folders below a path."""
        return await self._run(operations.usage(path))

    async def quota(self) -> views.Storage:
        """What the caller stores and may store."""
        return await self._run(operations.quota())

    async def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """A file's bytes, or those from `start` to before `end`; all are of one version of the file."""
        return await self._run(operations.read(path, start, end))

    async def upload(
        self, local: Local, remote: str, *, overwrite: bool = True, checksum: bool = False
    ) -> views.Transferred:
        """Sends a file or folder, which becomes exactly `remote`: see `Files.upload`."""
        return await self._run(operations.upload(local, remote, overwrite, checksum))

    async def download(
        self, remote: str, local: Local, *, overwrite: bool = True, checksum: bool = False
    ) -> views.Transferred:
        """Fetches a file or folder, which becomes exactly `local`; folders on the way are made."""
        return await self._run(operations.download(remote, local, overwrite, checksum))

    async def publish(self, path: str, *, lifetime: float | timedelta = timedelta(days=7)) -> views.Share:
        """Makes a link that anybody can read the file by, for a while."""
        return await self._run(operations.publish(path, lifetime))

    async def published(self) -> list[views.Share]:
        """The links that still work."""
        return await self._run(operations.published())

    async def unpublish(self, share: str) -> None:
        """Takes a link back, by its id."""
        await self._run(operations.unpublish(share))
