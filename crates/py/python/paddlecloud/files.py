"""`Client.files` and `AsyncClient.files`: the file service, `/pfs/…`.

    client.files.upload("./data", "/pfs/dc1/home/me/data")
    for found in client.files.listdir("/pfs/dc1/home/me/data", recursive=True):
        print(found.path, found.size)

Transfers move only what differs, resume after a lost connection, and verify every byte. Most methods are created
from `_file_operations`.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from paddlecloud._derived import AsyncFileCalls, FileCalls
from paddlecloud._operations import Operation
from paddlecloud.errors import NotFoundError

__all__ = ["AsyncFiles", "Files"]

T = TypeVar("T")


class _Run(Protocol):
    def __call__(self, operation: Operation[T], /) -> T: ...


class _AsyncRun(Protocol):
    async def __call__(self, operation: Operation[T], /) -> T: ...


class Files(FileCalls):
    """The file service of one server. Paths of the cluster begin with `/pfs/`."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        try:
            self.stat(path)
        except NotFoundError:
            return False
        return True


class AsyncFiles(AsyncFileCalls):
    """The same as `Files`, for asyncio."""

    def __init__(self, run: _AsyncRun) -> None:
        self._run = run

    async def exists(self, path: str) -> bool:
        """Whether a path exists."""
        try:
            await self.stat(path)
        except NotFoundError:
            return False
        return True
