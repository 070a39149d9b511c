"""The replies of a server as objects: jobs, workers, quotas, and lines of logs.

Fields have the names of the REST interface. A field that only a newer server knows is ignored; one that an
older server does not send is `None`.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime, timezone
from typing import Any, TypeVar

from paddlecloud._job_fields import JobView

_FINAL = frozenset({"Succeeded", "Failed", "Killed", "Lost"})
_TIMES = frozenset({"submitted", "started", "completed", "ended", "at", "estimate", "expires", "touched"})
_FRACTION = re.compile(r"\.(\d+)")

_V = TypeVar("_V", bound="View")


@dataclasses.dataclass(frozen=True)
class View:
    """The base class of all replies."""

    @classmethod
    def of(cls: type[_V], data: dict[str, Any]) -> _V:
        """The object for a reply's JSON."""
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**{name: cls._read(name, data.get(name)) for name in names})

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if value is not None and name in _TIMES:
            return _time(value)
        return value


@dataclasses.dataclass(frozen=True)
class Job(JobView, View):
    """A job and its state."""

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        # A reply omits them if there are none.
        return value or {} if name == "node_labels" else super()._read(name, value)

    @property
    def is_final(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self.status in _FINAL


@dataclasses.dataclass(frozen=True)
class Worker(View):
    """A trainer or a parameter server."""

    name: str
    job: str
    job_id: str
    role: str
    index: int
    status: str
    attempt: int
    address: str | None
    started: datetime | None
    ended: datetime | None
    exit_code: int | None
    message: str | None
    user: str | None = None
    node: str | None = None


@dataclasses.dataclass(frozen=True)
class Event(View):
    """One line of a job's history."""

    at: datetime
    text: str


@dataclasses.dataclass(frozen=True)
class JobDetail(View):
    """A job, its workers and its events."""

    job: Job
    workers: tuple[Worker, ...]
    events: tuple[Event, ...]

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if name == "job":
            return Job.of(value)
        kind = Worker if name == "workers" else Event
        return tuple(kind.of(item) for item in value or ())


@dataclasses.dataclass(frozen=True)
class Failure(View):
    """The worker that failed first, how it exited, and its last lines."""

    worker: Worker
    exit: str
    last_lines: list[str]
    others: int

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        return Worker.of(value) if name == "worker" else value


@dataclasses.dataclass(frozen=True)
class Why(View):
    """Why a job waits, or how it ended."""

    job: Job
    reason: str
    ahead: list[str]
    ahead_total: int
    estimate: datetime | None
    estimate_basis: str | None
    change: str | None
    first_failure: Failure | None

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if name == "job":
            return Job.of(value)
        if name == "first_failure":
            return None if value is None else Failure.of(value)
        return super()._read(name, value)


@dataclasses.dataclass(frozen=True)
class Submitted(View):
    """A job that the server has accepted; `id` is empty for a dry run."""

    id: str
    job: Job
    engine: str
    notes: list[str]
    manifests: list[dict[str, Any]]
    python: str | None
    """The Python that trainers start by name, on the server's own machine."""

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if name == "job":
            return Job.of(value)
        return value or [] if name in ("notes", "manifests") else value


@dataclasses.dataclass(frozen=True)
class Killed(View):
    """A kill that the server has accepted; `ending` workers terminate in the background."""

    id: str
    ending: int
    removed: bool


@dataclasses.dataclass(frozen=True)
class Pruned(View):
    """What was, or would be, removed from the history."""

    removed: list[str]
    bytes: int


@dataclasses.dataclass(frozen=True)
class JobPage(View):
    """One page of jobs; pass `next` as `after=` to get the next page, if there is one."""

    jobs: tuple[Job, ...]
    next: str | None

    @classmethod
    def of(cls, data: dict[str, Any]) -> JobPage:
        return cls(jobs=tuple(Job.of(job) for job in data["msg"]), next=data.get("next"))


@dataclasses.dataclass(frozen=True)
class Quota(View):
    """Limit and usage of one resource; a `limit` of `None` means no limit. With a `group`, of all its members together."""

    resource: str
    limit: str | None
    used: str
    guarantee: str | None = None
    reserved: str | None = None
    user: str | None = None
    group: str | None = None


@dataclasses.dataclass(frozen=True)
class Caller(View):
    """The caller as the server sees them."""

    user: str
    namespace: str
    datacenter: str
    home: str
    admin: bool


@dataclasses.dataclass(frozen=True)
class Server(View):
    """Version, folders and capacity of the server."""

    version: str
    pid: int
    embedded: bool
    datacenter: str
    engine: str
    listen: str
    storage: str
    data: str
    log: str | None
    database: str
    started: datetime
    cpu: str
    memory: str
    gpus: int
    degraded: list[str]
    jobs_pending: int
    jobs_running: int


@dataclasses.dataclass(frozen=True)
class LogEnd(View):
    """How a job ended, as the last frame of its log says."""

    id: str
    status: str
    message: str | None


@dataclasses.dataclass(frozen=True)
class FileInfo(View):
    """The metadata of a path: `kind` is `"file"`, `"folder"`, `"link"` or `"special"`.

    `path` is relative to the folder in a listing, absolute in the result of a pattern, and `None` from `stat`.
    """

    path: str | None
    kind: str
    size: int
    mtime: datetime
    executable: bool
    target: str | None
    digest: str | None
    version: str | None

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if name == "mtime":
            return datetime.fromtimestamp(value / 1e9, timezone.utc)
        return bool(value) if name == "executable" else value


@dataclasses.dataclass(frozen=True)
class Usage(View):
    """The usage below a path; `files` counts links too.

    The contents of the `unread` folders, which could not be read, are not counted.
    """

    bytes: int
    files: int
    folders: int
    unread: int = 0

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        return value or 0


@dataclasses.dataclass(frozen=True)
class Removed(View):
    """What was, or would be, removed with one path."""

    path: str
    usage: Usage

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        return Usage.of(value) if name == "usage" else value


@dataclasses.dataclass(frozen=True)
class Storage(View):
    """The caller's storage usage and limits; a limit of `None` means no limit. The usage includes unfinished uploads."""

    bytes_used: int
    files_used: int
    bytes_limit: int | None
    files_limit: int | None
    unfinished_bytes: int
    unfinished_uploads: int


@dataclasses.dataclass(frozen=True)
class UnfinishedUpload(View):
    """An unfinished upload: the path of its file, its size, and how much of it has arrived."""

    id: str
    path: str
    size: int
    arrived: int
    touched: datetime


@dataclasses.dataclass(frozen=True)
class Copied(View):
    """What a copy inside the storage copied."""

    bytes: int
    files: int


@dataclasses.dataclass(frozen=True)
class Transferred(View):
    """The result of a transfer. `bytes` is the size of the files, `moved` the bytes that went over the wire."""

    transferred: int
    unchanged: int
    kept: int
    bytes: int
    moved: int


@dataclasses.dataclass(frozen=True)
class Share(View):
    """A link to a file. Only its creator sees `link`."""

    id: str
    path: str
    expires: datetime
    link: str | None


@dataclasses.dataclass(frozen=True)
class Finding(View):
    """A file that differs from its record: `verdict` says how."""

    path: str
    verdict: str


@dataclasses.dataclass(frozen=True)
class Checked(View):
    """The result of a check of all known files; `checked` files were read."""

    checked: int
    findings: tuple[Finding, ...]

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        return tuple(Finding.of(item) for item in value) if name == "findings" else value


class LogLine(str):
    """A line of a worker's log, without its line end: a `str` with attributes.

    `stream` is `"output"` (standard output and standard error, in the order written), `"launcher"` (written before
    the program began) or `"gap"` (bytes that are missing: rotated away, or the disk was full). `raw` has the bytes, even if they are not UTF-8.
    """

    worker: str
    role: str
    worker_index: int
    attempt: int
    stream: str
    time: datetime | None
    raw: bytes

    @classmethod
    def of(cls, row: tuple[str, str, int, int, str, int, bytes]) -> LogLine:
        """The line for a row of the native module."""
        worker, role, index, attempt, stream, nanos, raw = row
        line = cls(raw.decode("utf-8", "replace"))
        line.worker, line.role, line.worker_index, line.attempt = worker, role, index, attempt
        line.stream, line.raw = stream, raw
        line.time = datetime.fromtimestamp(nanos / 1e9, timezone.utc) if nanos else None
        return line


def _time(text: str) -> datetime:
    """RFC 3339 with any number of digits; Python before 3.11 reads only three or six, and no `Z`."""
    text = _FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), text)
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
