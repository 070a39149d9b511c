"""`paddlecloud.Client`: the whole REST API, for programs that wait for each reply.

    with paddlecloud.Client() as client:
        job = client.job_submit("./my_package", entry="python train.py", parallelism=4)
        for line in client.job_logs(job.id, follow=True):
            print(line.worker, line)

It uses the server selected in `~/.paddle/config`, or else this machine's own, which is started if it is not
running. A client can be used by many threads and after a fork, and it can be pickled; the pickle contains
the credentials it was given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

from paddlecloud import _native, _operations, _program, views
from paddlecloud._derived import Calls
from paddlecloud.files import Files

__all__ = ["Client", "Logs"]

T = TypeVar("T")


class Connected:
    """A caller's connection to a server, shared by both clients."""

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
        self._address: dict[str, Any] = {
            "config": config,
            "datacenter": datacenter,
            **_checked_address(endpoint, config, username, password, token, usercert, userkey, cacert),
        }
        self._native = self._connection()

    def _connection(self) -> _native.Connection:
        """Without an address it may have to start this machine's own server: from this wheel's own program."""
        own = _program.find() if self._address["endpoint"] is None else None
        return _native.Connection(**self._address, program=own)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open connection: the copy opens its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._native = self._connection()


class Client(Connected, Calls):
    """A caller's connection to one server. Most methods are created from `_operations`."""

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
        """The address of the server."""
        return self._native.open()[1]

    @property
    def is_embedded(self) -> bool:
        """Whether it is this machine's own server. Asking does not start one."""
        return self._native.is_embedded()

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
        """Yields the log's lines; with `follow` until the job has ended, across lost connections, each line once."""
        query = _operations.log_query(follow, lines, worker, role, since)
        # A name may come to mean another run while the log is read.
        return Logs(self._native.logs(self.job_get(job).job.id, query))


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
        """How the job ended: known after the last line, if the job is final."""
        return log_end(self._stream)

    def close(self) -> None:
        """Stops reading; the job continues."""
        self._stream.close()


def _checked_address(
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
            raise TypeError(f"`{given[0]}` needs `endpoint`; without it the configuration is used")
    if endpoint is not None and config is not None:
        raise TypeError("`endpoint` and `config` are mutually exclusive")
    if password is not None and username is None:
        raise TypeError("`password` needs `username`")
    if (usercert is None) != (userkey is None):
        raise TypeError("`usercert` and `userkey` must be set together")
    return {"endpoint": endpoint, **described}


def log_end(stream: _native.LogStream) -> views.LogEnd | None:
    """How the job of a log ended, if it is known."""
    text = stream.end
    return None if text is None else views.LogEnd.of(json.loads(text))
