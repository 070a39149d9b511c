"""`paddlecloud.AsyncClient`: the same as `Client`, for programs that use asyncio.

    client = paddlecloud.AsyncClient()
    job = await client.job_submit("./my_package", entry="python train.py")
    async for line in client.job_logs(job.id, follow=True):
        print(line)

Nothing blocks the event loop, and cancelling a task ends its request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from paddlecloud import _native, _operations, views
from paddlecloud._derived import AsyncCalls
from paddlecloud.client import Connected, log_end
from paddlecloud.files import AsyncFiles

__all__ = ["AsyncClient", "AsyncLogs"]

T = TypeVar("T")


class AsyncClient(Connected, AsyncCalls):
    """A caller's connection to one server. The methods are those of `Client`."""

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Connections are kept while the client lives, and end with it."""

    async def _run(self, operation: _operations.Operation[T]) -> T:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[str | bytes] = loop.create_future()
        started = self._native.start(operation.text, _called_on(loop, lambda *outcome: _settle(reply, *outcome)))
        try:
            return operation.result(await reply)
        except asyncio.CancelledError:
            started.cancel()
            raise

    @property
    def files(self) -> AsyncFiles:
        """The file service, `/pfs/…`."""
        return AsyncFiles(self._run)

    def job_logs(
        self,
        job: str = "last",
        *,
        follow: bool = False,
        lines: int | None = None,
        worker: str | None = None,
        role: str | None = None,
        since: datetime | timedelta | None = None,
    ) -> AsyncLogs:
        """The log's lines, for `async for`; with `follow` until the job has ended, each line once."""
        return AsyncLogs(self, job, _operations.log_query(follow, lines, worker, role, since))


class AsyncLogs(AsyncIterator[views.LogLine]):
    """The lines of a log, one by one, for one reader. `end` says how the job ended once the last one was read."""

    def __init__(self, client: AsyncClient, job: str, query: str) -> None:
        self._client = client
        self._job = job
        self._query = query
        self._stream: _native.LogStream | None = None
        self._ready: deque[tuple[Any, ...]] = deque()
        self._pending: asyncio.Future[bool] | None = None

    def __aiter__(self) -> AsyncLogs:
        return self

    async def __anext__(self) -> views.LogLine:
        if self._stream is None:
            # A name may come to mean another run while the log is read.
            found = (await self._client.job_get(self._job)).job.id
            self._stream = self._client._native.logs(found, self._query)
        while not self._ready:
            if not await self._more(self._stream):
                raise StopAsyncIteration
        return views.LogLine.of(self._ready.popleft())

    async def _more(self, stream: _native.LogStream) -> bool:
        """Waits for lines. A reader that is cancelled loses none: what was asked for stays asked for."""
        if self._pending is None:
            loop = asyncio.get_running_loop()
            pending = self._pending = loop.create_future()

            def take(rows: list[tuple[Any, ...]] | None, error: BaseException | None) -> None:
                self._ready.extend(rows or ())
                _settle(pending, rows is not None, error)

            stream.start_next(_called_on(loop, take))
        try:
            return await asyncio.shield(self._pending)
        finally:
            if self._pending.done():
                self._pending = None

    @property
    def end(self) -> views.LogEnd | None:
        """How the job ended: known after the last line, if the job is final."""
        return None if self._stream is None else log_end(self._stream)

    async def aclose(self) -> None:
        """Stops reading; the job continues."""
        if self._stream is not None:
            self._stream.close()


def _called_on(
    loop: asyncio.AbstractEventLoop, callback: Callable[[Any, BaseException | None], None]
) -> Callable[[Any, BaseException | None], None]:
    """What the native module calls from its own thread, so that `callback` is called on the loop's."""

    def done(value: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(callback, value, error)
        except RuntimeError:
            pass  # The loop was closed meanwhile: nobody waits.

    return done


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
