"""The operations of the REST interface: what is sent for each, and how its reply is read.

`Client` and `AsyncClient` differ only in how they wait, so what they have in common stands here.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Generic, NamedTuple, TypeVar

from paddlecloud import views

T = TypeVar("T")

_FIELDS = frozenset(
    """name job_package parallelism cpu gpu memory pservers pscpu psmemory topology entry psentry psports passes
    image registry datacenter envs priority retries max_runtime start_limit grace""".split()
)


class Operation(NamedTuple, Generic[T]):
    """A call, as the native module takes it, and the reader of its reply."""

    text: str
    read: Callable[[Any], T]

    def result(self, reply: str | bytes) -> T:
        """What the reply means; bytes are a file's own, all else is JSON."""
        return self.read(reply if isinstance(reply, bytes) else json.loads(reply))


def operation(name: str, read: Callable[[Any], T], /, **arguments: Any) -> Operation[T]:
    """A call by its name in the native module."""
    return Operation(json.dumps({"do": name, **arguments}), read)


def nothing(_: Any) -> None:
    """Reads a reply that says only that all went well."""
    return None


def jobs_list(
    all: bool, name: str | None, limit: int | None, after: str | None
) -> Operation[views.JobPage]:
    return operation("jobs_list", views.JobPage.of, all=bool(all), name=name, limit=limit, after=after)


def job_submit(
    package: str | os.PathLike[str] | None, key: str | None, dry_run: bool, fields: Mapping[str, Any]
) -> Operation[views.Submitted]:
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise TypeError(f"a job has no field {', '.join(map(repr, unknown))}")
    request = {name: value for name, value in fields.items() if value is not None}
    request.update(dry_run=dry_run, shell_env=_own_python())
    folder = None
    if package is not None:
        place = os.fspath(package)
        if place == "/pfs" or place.startswith("/pfs/"):
            request["job_package"] = place
        else:
            folder = os.path.abspath(place)
    return operation("job_submit", views.Submitted.of, request=request, folder=folder, key=key)


def job_get(job: str) -> Operation[views.JobDetail]:
    return operation("job_get", views.JobDetail.of, job=_job(job))


def job_kill(job: str, remove: bool) -> Operation[views.Killed]:
    return operation("job_kill", views.Killed.of, job=_job(job), remove=bool(remove))


def job_why(job: str) -> Operation[views.Why]:
    return operation("job_why", views.Why.of, job=_job(job))


def job_wait(job: str, timeout: float | None) -> Operation[views.JobDetail]:
    return operation("job_wait", views.JobDetail.of, job=_job(job), timeout=seconds("timeout", timeout))


def job_rerun(job: str, key: str | None) -> Operation[views.Submitted]:
    return operation("job_rerun", views.Submitted.of, job=_job(job), key=key)


def jobs_prune(older_than: float | timedelta | None, dry_run: bool) -> Operation[views.Pruned]:
    age = seconds("older_than", older_than)
    return operation("jobs_prune", views.Pruned.of, older_than=age, dry_run=bool(dry_run))


def workers_list(job: str | None) -> Operation[list[views.Worker]]:
    return operation("workers_list", each(views.Worker), job=job)


def quota_get() -> Operation[list[views.Quota]]:
    return operation("quota_get", each(views.Quota))


def server_get() -> Operation[views.Server]:
    return operation("server_get", views.Server.of)


def server_stop() -> Operation[None]:
    return operation("server_stop", nothing)


def whoami_get() -> Operation[views.Caller]:
    return operation("whoami_get", views.Caller.of)


def ping() -> Operation[None]:
    return operation("ping", nothing)


def login() -> Operation[None]:
    return operation("login", nothing)


def log_query(
    follow: bool, lines: int | None, worker: str | None, role: str | None, since: datetime | timedelta | None
) -> str:
    """What is wanted of a log, as the native module takes it."""
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


def _job(job: str) -> str:
    """A name, an id or `last`; what a list or a submit returned will do as well."""
    return job if isinstance(job, str) else job.id


def seconds(name: str, value: float | timedelta | None) -> float | None:
    """A time as a number of seconds; `None` for none and for ever."""
    if value is None:
        return None
    number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if math.isnan(number) or number < 0:
        raise ValueError(f"`{name}` must not be negative, but it is {value}")
    return None if math.isinf(number) else number


def _own_python() -> dict[str, str]:
    """Makes `python` in a job on this machine the Python that submits it, also where its environment is not activated."""
    if sys.prefix == sys.base_prefix:
        return {}
    programs = os.path.dirname(sys.executable)
    path = os.environ.get("PATH", "")
    folders = [programs, *(folder for folder in path.split(os.pathsep) if folder and folder != programs)]
    return {"PATH": os.pathsep.join(folders), "VIRTUAL_ENV": sys.prefix}
