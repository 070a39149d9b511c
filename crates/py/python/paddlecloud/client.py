"""`paddlecloud.Client`: the whole REST interface, for programs that wait for each answer.

    with paddlecloud.Client() as client:
        job = client.job_submit("./my_package", entry="python train.py", parallelism=4)
        for line in client.job_logs(job.id, follow=True):
            print(line.worker, line)

It talks to the server that `~/.paddle/config` chooses, else to this machine's own, which is started when it
does not run. A client may be used by many threads, and also after a fork.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

from paddlecloud import _native, _operations, views
from paddlecloud.files import Files

__all__ = ["Client", "Logs"]

T = TypeVar("T")


class Client:
    """One caller's way to one server."""

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

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Connections are kept while the client lives, and end with it."""

    def _run(self, operation: _operations.Operation[T]) -> T:
        return operation.result(self._native.run(operation.text))

    @property
    def files(self) -> Files:
        """The file service, `/pfs/…`."""
        return Files(self._run)

    @property
    def datacenter(self) -> str:
        """The configuration's name for the server; `local` for the embedded one."""
        return self._native.open()[0]

    @property
    def endpoint(self) -> str:
        """Where the server is."""
        return self._native.open()[1]

    @property
    def is_embedded(self) -> bool:
        """Whether it is this machine's own server."""
        return self._native.open()[2]

    def jobs_list(
        self,
        *,
        all: bool = False,
        name: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> views.JobPage:
        """Pending and running jobs, newest first; with `all` also those that have ended."""
        return self._run(_operations.jobs_list(all, name, limit, after))

    def job_submit(
        self,
        package: str | os.PathLike[str] | None = None,
        *,
        key: str | None = None,
        dry_run: bool = False,
        **fields: Any,
    ) -> views.Submitted:
        """Starts a job. `package` is a local folder, which is uploaded, or a path `/pfs/…`.

        `fields` are those of `POST /api/v1/jobs`: `name`, `parallelism`, `cpu`, `memory`, `entry`, `envs` and so
        on. With the same `key` there is one job, however often this is called.
        """
        return self._run(_operations.job_submit(package, key, dry_run, fields))

    def job_get(self, job: str) -> views.JobDetail:
        """A job with its workers and events. Here and below `job` is a name, an id or `last`."""
        return self._run(_operations.job_get(job))

    def job_kill(self, job: str, *, remove: bool = False) -> views.Killed:
        """Stops a job; its workers end in the background. `remove` also takes it out of the history."""
        return self._run(_operations.job_kill(job, remove))

    def job_why(self, job: str) -> views.Why:
        """Why a job waits, or how it ended."""
        return self._run(_operations.job_why(job))

    def job_wait(self, job: str, *, timeout: float | None = None) -> views.JobDetail:
        """Returns when the job has ended, or as it stands after `timeout` seconds."""
        return self._run(_operations.job_wait(job, timeout))

    def job_rerun(self, job: str, *, key: str | None = None) -> views.Submitted:
        """Runs a job again, as it was."""
        return self._run(_operations.job_rerun(job, key))

    def job_logs(
        self,
        job: str = "last",
        *,
        follow: bool = False,
        lines: int | None = None,
        worker: str | None = None,
        role: str | None = None,
        since: datetime | timedelta | None = None,
    ) -> Logs:
        """The log's lines; with `follow` until the job has ended, across lost connections, each line once."""
        query = _operations.log_query(follow, lines, worker, role, since)
        # A name may come to mean another run while the log is read.
        return Logs(self._native.logs(self.job_get(job).job.id, query))

    def jobs_prune(
        self, *, older_than: float | timedelta | None = None, dry_run: bool = False
    ) -> views.Pruned:
        """Removes ended jobs from the history, with their logs; `older_than` in seconds."""
        return self._run(_operations.jobs_prune(older_than, dry_run))

    def workers_list(self, job: str | None = None) -> list[views.Worker]:
        """The workers of one job, or of all that run."""
        return self._run(_operations.workers_list(job))

    def quota_get(self) -> list[views.Quota]:
        """Limit and use of each resource."""
        return self._run(_operations.quota_get())

    def server_get(self) -> views.Server:
        """What the server says about itself."""
        return self._run(_operations.server_get())

    def server_stop(self) -> None:
        """Stops the embedded server; running jobs go on, and the next start takes them over."""
        self._run(_operations.server_stop())

    def whoami_get(self) -> views.Caller:
        """Who the server takes the caller for."""
        return self._run(_operations.whoami_get())

    def ping(self) -> None:
        """Returns if the server answers at all."""
        self._run(_operations.ping())

    def login(self) -> None:
        """Trades name and password for a token, which is kept as `paddlectl login` keeps it."""
        self._run(_operations.login())


class Logs(Iterator[views.LogLine]):
    """The lines of a log, one by one. `end` says how the job ended once the last one was read."""

    def __init__(self, stream: _native.LogStream) -> None:
        self._stream = stream
        self._ready: list[tuple[Any, ...]] = []

    def __iter__(self) -> Logs:
        return self

    def __next__(self) -> views.LogLine:
        if not self._ready:
            rows = self._stream.next()
            if rows is None:
                raise StopIteration
            self._ready = rows[::-1]
        return views.LogLine.of(self._ready.pop())

    def __enter__(self) -> Logs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def end(self) -> views.LogEnd | None:
        """How the job ended: known when all was read and the job is final."""
        return log_end(self._stream)

    def close(self) -> None:
        """Stops reading; the job goes on."""
        self._stream.close()


def checked_address(
    endpoint: str | None,
    config: str | os.PathLike[str] | None,
    username: str | None,
    password: str | None,
    token: str | None,
    usercert: str | os.PathLike[str] | None,
    userkey: str | os.PathLike[str] | None,
    cacert: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """The keywords that describe a server, if they make sense together."""
    described = {
        "username": username,
        "password": password,
        "token": token,
        "usercert": usercert,
        "userkey": userkey,
        "cacert": cacert,
    }
    if endpoint is None:
        given = [name for name, value in described.items() if value is not None]
        if given:
            raise TypeError(f"`{given[0]}` needs `endpoint`: without it the configuration decides")
    if endpoint is not None and config is not None:
        raise TypeError("`endpoint` and `config` exclude each other")
    if password is not None and username is None:
        raise TypeError("`password` needs `username`")
    if (usercert is None) != (userkey is None):
        raise TypeError("`usercert` and `userkey` belong together")
    return {"endpoint": endpoint, **described}


def log_end(stream: _native.LogStream) -> views.LogEnd | None:
    """How the job of a log ended, if that is known yet."""
    text = stream.end
    return None if text is None else views.LogEnd.of(json.loads(text))
