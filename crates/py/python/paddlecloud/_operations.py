"""The operations of the REST interface: what is sent for each, and how its reply is read.

`Client` and `AsyncClient` differ only in how they wait: `_derived` makes the methods of both from the class
`Operations`, so the signatures and docstrings here are those that users see.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from paddlecloud import views
from paddlecloud._job_fields import JobFields

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Operation(Generic[T]):
    """A call, as the native module takes it, and the reader of its reply."""

    text: str
    read: Callable[[Any], T]

    def result(self, reply: str | bytes) -> T:
        """Converts the reply; bytes are the content of a file, everything else is JSON."""
        return self.read(reply if isinstance(reply, bytes) else json.loads(reply))


def operation(name: str, read: Callable[[Any], T], /, **arguments: Any) -> Operation[T]:
    """A call by its name in the native module."""
    return Operation(json.dumps({"do": name, **arguments}), read)


def nothing(_: Any) -> None:
    """Reads a reply that only reports success."""
    return None


def request(
    method: str, path: str, read: Callable[[Any], T], /, *, json: Any = None, **query: Any
) -> Operation[T]:
    """A call by its route, for those without a method in the native client; `None` leaves a query parameter out."""
    words = urlencode({name: _word(value) for name, value in query.items() if value is not None})
    target = quote(path, safe="/%") + (f"?{words}" if words else "")
    return operation("request", read, method=method, target=target, json=json)


def message(read: Callable[[Any], T]) -> Callable[[bytes], T]:
    """Reads a reply in the envelope `{"code": …, "msg": …}`."""
    return lambda reply: read(json.loads(reply)["msg"])


class Operations:
    """Every operation except those on files and logs. `self` is the client, which no operation uses."""

    def jobs_list(
        self,
        *,
        all: bool = False,
        name: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        all_users: bool = False,
        reasons: bool = False,
    ) -> Operation[views.JobPage]:
        """Lists pending and running jobs, newest first; with `all` also those that have ended.

        With `reasons`, the `message` of each waiting job says why it waits.
        `all_users`, here and below, is for administrators: the server records it in its audit log.
        """
        return operation(
            "jobs_list",
            views.JobPage.of,
            all=bool(all),
            name=name,
            limit=limit,
            after=after,
            all_users=bool(all_users),
            reasons=bool(reasons),
        )

    def job_submit(
        self,
        package: str | os.PathLike[str] | None = None,
        *,
        key: str | None = None,
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> Operation[views.Submitted]:
        """Submits a job. `package` is a local folder, which is uploaded, or a path `/pfs/…`.

        `fields` are those of `POST /api/v1/jobs`: `name`, `parallelism`, `cpu`, `memory`, `entry`, `envs` and so
        on. Repeated calls with the same `key` create only one job.
        """
        unknown = sorted(set(fields) - set(JobFields.__annotations__))
        if unknown:
            raise TypeError(f"a job has no field {', '.join(map(repr, unknown))}")
        wanted: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        wanted.update(dry_run=dry_run, shell_env=_own_python())
        place = None if package is None else os.fspath(package)
        folder = None
        if place is not None and (place == "/pfs" or place.startswith("/pfs/")):
            wanted["job_package"] = place
        elif place is not None:
            folder = os.path.abspath(place)
        return operation("job_submit", views.Submitted.of, request=wanted, folder=folder, key=key)

    def job_get(self, job: str) -> Operation[views.JobDetail]:
        """Returns a job with its workers and events. Here and below `job` is a name, an id or `last`."""
        return operation("job_get", views.JobDetail.of, job=_job(job))

    def job_kill(self, job: str, *, remove: bool = False) -> Operation[views.Killed]:
        """Stops a job; its workers terminate in the background. `remove` also removes it from the history."""
        return operation("job_kill", views.Killed.of, job=_job(job), remove=bool(remove))

    def job_why(self, job: str) -> Operation[views.Why]:
        """Explains why a job waits, or how it ended."""
        return operation("job_why", views.Why.of, job=_job(job))

    def job_wait(self, job: str, *, timeout: float | None = None) -> Operation[views.JobDetail]:
        """Returns the job when it has ended, or its current state after `timeout` seconds."""
        return operation("job_wait", views.JobDetail.of, job=_job(job), timeout=seconds("timeout", timeout))

    def job_rerun(self, job: str, *, key: str | None = None) -> Operation[views.Submitted]:
        """Submits a job again unchanged."""
        return operation("job_rerun", views.Submitted.of, job=_job(job), key=key)

    def job_log_text(
        self, job: str | None = None, *, lines: int | None = None, worker: str | None = None
    ) -> Operation[str]:
        """Returns the output of a job so far as one text; by default that of the latest job."""
        name = None if job is None else _job(job)
        return request("GET", "/api/v1/logs", message(str), jobname=name, n=lines, w=worker)

    def jobs_prune(
        self, *, older_than: float | timedelta | None = None, dry_run: bool = False
    ) -> Operation[views.Pruned]:
        """Removes ended jobs from the history, with their logs; `older_than` in seconds."""
        age = seconds("older_than", older_than)
        return operation("jobs_prune", views.Pruned.of, older_than=age, dry_run=bool(dry_run))

    def workers_list(self, job: str | None = None, *, all_users: bool = False) -> Operation[list[views.Worker]]:
        """Lists the workers of one job, or of all running jobs; with `all_users` those of all users, each with a `user`."""
        name = None if job is None else _job(job)
        return operation("workers_list", each(views.Worker), job=name, all_users=bool(all_users))

    def quota_get(self, *, all_users: bool = False) -> Operation[list[views.Quota]]:
        """Returns limit and usage of each resource; with `all_users` of every user, each row with a `user`."""
        return operation("quota_get", each(views.Quota), all_users=bool(all_users))

    def registry_list(self) -> Operation[list[Any]]:
        """Lists the image registries whose credentials the server stores, without the credentials."""
        return request("GET", "/api/v1/registry", message(list))

    def registry_create(self, name: str, *, server: str, username: str, password: str) -> Operation[None]:
        """Stores the credentials of an image registry under a name; `registry=` of a job uses it."""
        body = {"name": name, "server": server, "username": username, "password": password}
        return request("POST", "/api/v1/registry", nothing, json=body)

    def registry_delete(self, name: str | None = None) -> Operation[None]:
        """Deletes a registry; `name` is optional if there is exactly one."""
        return request("DELETE", "/api/v1/registry", nothing, json={} if name is None else {"name": name})

    def server_get(self) -> Operation[views.Server]:
        """Returns version, folders and capacity of the server."""
        return operation("server_get", views.Server.of)

    def server_stop(self) -> Operation[None]:
        """Stops the embedded server; running jobs continue, and the next server adopts them."""
        return operation("server_stop", nothing)

    def whoami_get(self) -> Operation[views.Caller]:
        """Returns the caller's user, home and rights."""
        return operation("whoami_get", views.Caller.of)

    def ping(self) -> Operation[None]:
        """Returns if the server answers."""
        return operation("ping", nothing)

    def ready_get(self) -> Operation[None]:
        """Returns if the server can accept jobs; otherwise raises an error with the reason."""
        return request("GET", "/readyz", nothing)

    def metrics_get(self) -> Operation[str]:
        """Returns the server's metrics in Prometheus' format."""
        return request("GET", "/metrics", _text)

    def openapi_get(self) -> Operation[dict[str, Any]]:
        """Returns the server's OpenAPI document."""
        return request("GET", "/openapi.json", json.loads)

    def login(self) -> Operation[None]:
        """Exchanges user name and password for a token and stores it, as `paddlectl login` does."""
        return operation("login", nothing)

    def request(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, json: Any = None
    ) -> Operation[bytes]:
        """Calls any route by its path, such as `/api/v1/jobs`. Returns the reply's bytes; errors are exceptions."""
        return request(method.upper(), path, bytes, json=json, **(query or {}))


def log_query(
    follow: bool, lines: int | None, worker: str | None, role: str | None, since: datetime | timedelta | None
) -> str:
    """The query for a log, as the native module takes it."""
    if isinstance(since, timedelta):
        since = datetime.now(timezone.utc) - since
    if since is not None and since.tzinfo is None:
        since = since.astimezone()
    query = {"follow": bool(follow), "n": lines, "w": worker, "role": role}
    query["since"] = None if since is None else since.isoformat()
    return json.dumps(query)


def each(view: type[Any]) -> Callable[[Any], list[Any]]:
    """Reads a list of views."""
    return lambda items: [view.of(item) for item in items]


def _text(reply: bytes) -> str:
    return reply.decode()


def _word(value: Any) -> Any:
    """A value as a query parameter."""
    return str(value).lower() if isinstance(value, bool) else value


def _job(job: str) -> str:
    """A name, an id or `last`; an object that a list or a submit returned works too."""
    return job if isinstance(job, str) else job.id


def seconds(name: str, value: float | timedelta | None) -> float | None:
    """A time in seconds; `None` means no limit."""
    if value is None:
        return None
    number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if math.isnan(number) or number < 0:
        raise ValueError(f"`{name}` must not be negative, but it is {value}")
    return None if math.isinf(number) else number


def _own_python() -> dict[str, str]:
    """Makes `python` in a job on this machine the submitting Python, even if its environment is not activated."""
    if sys.prefix == sys.base_prefix:
        return {}
    programs = os.path.dirname(sys.executable)
    path = os.environ.get("PATH", "")
    folders = [programs, *(folder for folder in path.split(os.pathsep) if folder and folder != programs)]
    return {"PATH": os.pathsep.join(folders), "VIRTUAL_ENV": sys.prefix}
