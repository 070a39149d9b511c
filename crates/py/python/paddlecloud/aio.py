"""`paddlecloud.AsyncClient`: the same as `Client`, for programs that use asyncio.

    client = paddlecloud.AsyncClient()
    job = await client.job_submit("./my_package", entry="python train.py")
    async for line in client.job_logs(job.id, follow=True):
        print(line)

Nothing blocks the event loop, and cancelling a task ends its request.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from paddlecloud import _native, _operations, views
from paddlecloud.client import checked_address, log_end
from paddlecloud.files import AsyncFiles

__all__ = ["AsyncClient", "AsyncLogs"]

T = TypeVar("T")


class AsyncClient:
    """One caller's way to one server. The methods are those of `Client`."""

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        usercert: str | os.PathLike[str] | None = None,
        userkey: str | os.PathLike[str] | None = None,
        cacert: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        datacenter: str | None = None,
    ) -> None:
        """Without `endpoint` the configuration decides; `config` and `datacenter` are `paddlectl`'s flags."""
        self._native = _native.Connection(
            config=config,
            datacenter=datacenter,
            **checked_address(endpoint, config, username, password, token, usercert, userkey, cacert),
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Connections are kept while the client lives, and end with it."""

    async def _run(self, operation: _operations.Operation[T]) -> T:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[str | bytes] = loop.create_future()
        started = self._native.start(operation.text, _heard_by(loop, lambda *told: _settle(reply, *told)))
        try:
            return operation.result(await reply)
        except asyncio.CancelledError:
            started.cancel()
            raise

    @property
    def files(self) -> AsyncFiles:
        """The file service, `/pfs/…`."""
        return AsyncFiles(self._run)

    async def jobs_list(
        self,
        *,
        all: bool = False,
        name: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> views.JobPage:
        """Pending and running jobs, newest first; with `all` also those that have ended."""
        return await self._run(_operations.jobs_list(all, name, limit, after))

    async def job_submit(
        self,
        package: str | os.PathLike[str] | None = None,
        *,
        key: str | None = None,
        dry_run: bool = False,
        **fields: Any,
    ) -> views.Submitted:
        """Starts a job: see `Client.job_submit`."""
        return await self._run(_operations.job_submit(package, key, dry_run, fields))

    async def job_get(self, job: str) -> views.JobDetail:
        """A job with its workers and events. Here and below `job` is a name, an id or `last`."""
        return await self._run(_operations.job_get(job))

    async def job_kill(self, job: str, *, remove: bool = False) -> views.Killed:
        """Stops a job; its workers end in the background. `remove` also takes it out of the history."""
        return await self._run(_operations.job_kill(job, remove))

    async def job_why(self, job: str) -> views.Why:
        """Why a job waits, or how it ended."""
        return await self._run(_operations.job_why(job))

    async def job_wait(self, job: str, *, timeout: float | None = None) -> views.JobDetail:
        """Returns when the job has ended, or as it stands after `timeout` seconds."""
        return await self._run(_operations.job_wait(job, timeout))

    async def job_rerun(self, job: str, *, key: str | None = None) -> views.Submitted:
        """Runs a job again, as it was."""
        return await self._run(_operations.job_rerun(job, key))

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

    async def jobs_prune(
        self, *, older_than: float | timedelta | None = None, dry_run: bool = False
    ) -> views.Pruned:
        """Removes ended jobs from the history, with their logs; `older_than` in seconds."""
        return await self._run(_operations.jobs_prune(older_than, dry_run))

    async def workers_list(self, job: str | None = None) -> list[views.Worker]:
        """The workers of one job, or of all that run."""
        return await self._run(_operations.workers_list(job))

    async def quota_get(self) -> list[views.Quota]:
        """Limit and use of each resource."""
        return await self._run(_operations.quota_get())

    async def server_get(self) -> views.Server:
        """What the server says about itself."""
        return await self._run(_operations.server_get())

    async def server_stop(self) -> None:
        """Stops the embedded server; running jobs go on, and the next start takes them over."""
        await self._run(_operations.server_stop())

    async def whoami_get(self) -> views.Caller:
        """Who the server takes the caller for."""
        return await self._run(_operations.whoami_get())

    async def ping(self) -> None:
        """Returns if the server answers at all."""
        await self._run(_operations.ping())

    async def login(self) -> None:
        """Trades name and password for a token, which is kept as `paddlectl login` keeps it."""
        await self._run(_operations.login())


class AsyncLogs(AsyncIterator[views.LogLine]):
    """The lines of a log, one by one, for one reader. `end` says how the job ended once the last one was read."""

    def __init__(self, client: AsyncClient, job: str, query: str) -> None:
        self._client = client
        self._job = job
        self._query = query
        self._stream: _native.LogStream | None = None
        self._ready: deque[tuple[Any, ...]] = deque()
        self._asked: asyncio.Future[bool] | None = None

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
        if self._asked is None:
            loop = asyncio.get_running_loop()
            asked = self._asked = loop.create_future()

            def take(rows: list[tuple[Any, ...]] | None, error: BaseException | None) -> None:
                self._ready.extend(rows or ())
                _settle(asked, rows is not None, error)

            stream.start_next(_heard_by(loop, take))
        try:
            return await asyncio.shield(self._asked)
        finally:
            if self._asked.done():
                self._asked = None

    @property
    def end(self) -> views.LogEnd | None:
        """How the job ended: known when all was read and the job is final."""
        return None if self._stream is None else log_end(self._stream)

    async def aclose(self) -> None:
        """Stops reading; the job goes on."""
        if self._stream is not None:
            self._stream.close()


def _heard_by(
    loop: asyncio.AbstractEventLoop, hear: Callable[[Any, BaseException | None], None]
) -> Callable[[Any, BaseException | None], None]:
    """What the native module calls from its own thread, so that `hear` is called on the loop's."""

    def done(value: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(hear, value, error)
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
