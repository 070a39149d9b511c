"""The fields of a job. Written by crates/py/stubs.py from openapi.json: change crates/api/src/submit.rs instead."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import TypedDict


class JobFields(TypedDict, total=False):
    """The fields of a request for a job, as in `POST /api/v1/jobs`."""

    comment: str | None
    cpu: int | str | None
    datacenter: str | None
    disk: int | str | None
    entry: str | None
    envs: dict[str, str]
    gpu: int | None
    gpu_type: str | None
    grace: int | str | None
    image: str | None
    job_package: str | None
    manifests: bool
    max_runtime: int | str | None
    memory: int | str | None
    name: str | None
    node_labels: dict[str, str]
    parallelism: int | None
    passes: int | None
    priority: int | None
    pscpu: int | str | None
    psentry: str | None
    pservers: int | None
    psmemory: int | str | None
    psports: int | None
    registry: str | None
    resume: str | None
    retries: int | None
    secrets: list[str]
    start_limit: int | str | None
    topology: str | None


@dataclasses.dataclass(frozen=True)
class JobView:
    """What a server reports about a job, as in `GET /api/v1/jobs`."""

    id: str
    name: str
    user: str
    status: str
    message: str | None
    active: int
    comment: str | None
    completed: datetime | None
    cpu: int | str
    datacenter: str
    disk: str | None
    entry: str
    envs: dict[str, str]
    failed: int
    gpu: int
    gpu_type: str | None
    grace: str
    image: str | None
    job_package: str | None
    max_runtime: str | None
    memory: str
    namespace: str
    node_labels: dict[str, str]
    output: str | None
    parallelism: int
    passes: int
    priority: int
    pscpu: int | str
    psentry: str
    pservers: int
    psmemory: str
    registry: str | None
    resumed_from: str | None
    retries: int
    start_limit: str
    started: datetime | None
    submitted: datetime
    succeeded: int
    topology: str | None
