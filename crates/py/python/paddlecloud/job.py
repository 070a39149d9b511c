"""`paddle.job`: a training job described and submitted from Python.

    import paddle.job as job

    paddle_job = job.PaddleJob(
        job_name="word2vec",
        entry_point="python train.py",
        trainer_package_path="./word2vec",
        cpu_nums=2,
        memory="4G",
    )
    paddle_job.submit()
    for line in paddle_job.logs(follow=True):
        print(line)

Jobs go to the server selected in `~/.paddle/config`, or else to this machine's own. A job whose program is in its
`runtime_image`, or that needs a CephFS, needs a cluster: without a configured server, the cluster of the kubeconfig.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from paddlecloud import _cephfs, _kubeconfig, views
from paddlecloud._job_fields import JobFields
from paddlecloud.client import Client, Logs
from paddlecloud.errors import JobFailedError, NoServerError, NotPossibleHere, PackageError

__all__ = ["CephFSVolume", "PaddleJob", "dist_train"]

T = TypeVar("T")

# In every image that `build_docker.sh` made, whatever runs it.
_IMAGE_MARK = "/usr/local/lib/paddlecloud/install.sh"

# Those of a request that `PaddleJob` has no argument of its own for.
_MORE_FIELDS = frozenset(JobFields.__annotations__) - frozenset(
    """name job_package parallelism cpu gpu memory pservers entry image datacenter manifests""".split()
)


@dataclasses.dataclass(frozen=True)
class CephFSVolume:
    """A CephFS file system that every worker sees, at `mount_path` and at `/data`.

    ceph-csi mounts it. `secret_name` is a Secret of ceph-csi's own namespace with the key of `user`.
    """

    monitors_addr: str
    user: str = "admin"
    secret_name: str = "cephfs-secret"
    mount_path: str = "/mnt/cephfs"
    path: str = "/"


class PaddleJob:
    """A training job. Cores, memory and GPUs are those of each trainer."""

    def __init__(
        self,
        *,
        job_name: str,
        entry_point: str,
        runtime_image: str | None = None,
        memory: str | int = "1Gi",
        cpu_nums: int | str | None = None,
        cpu_num: int | str | None = None,
        gpu_nums: int | None = None,
        use_gpu: bool | None = None,
        pservers: int = 2,
        trainers: int = 3,
        trainer_package_path: str | os.PathLike[str] | None = None,
        namespace: str | None = None,
        cephfs_volume: CephFSVolume | None = None,
        client: Client | None = None,
        **fields: Any,
    ) -> None:
        """`trainer_package_path` is the folder of the program, local or under `/pfs`; default: the folder of the
        running program. `fields` are other fields of `POST /api/v1/jobs`, such as `envs`.
        """
        unknown = sorted(set(fields) - _MORE_FIELDS)
        if unknown:
            raise TypeError(f"PaddleJob() got an unexpected keyword argument {unknown[0]!r}")
        if cephfs_volume is not None and not isinstance(cephfs_volume, CephFSVolume):
            raise TypeError(f"`cephfs_volume` must be a CephFSVolume, not {type(cephfs_volume).__name__}")
        problem = None if cephfs_volume is None else _cephfs.check(cephfs_volume)
        if problem is not None:
            raise ValueError(problem)
        self.job_name = job_name
        self.entry_point = entry_point
        self.runtime_image = runtime_image
        self.memory = memory
        self.cpu_nums = _one_of("cpu_nums", cpu_nums, "cpu_num", cpu_num, default=1)
        self.gpu_nums = _cards(gpu_nums, use_gpu, default=int("gpu_type" in fields))
        self.pservers = pservers
        self.trainers = trainers
        self.trainer_package_path = trainer_package_path
        self.namespace = namespace
        self.cephfs_volume = cephfs_volume
        self._fields = fields
        self._client = client
        self._submitted: views.Submitted | None = None

    def __repr__(self) -> str:
        state = "not submitted here" if self.id is None else self.id
        return f"<PaddleJob {self.job_name!r}: {state}>"

    @property
    def client(self) -> Client:
        """The client for the server."""
        if self._client is None:
            self._client = Client()
        return self._client

    @property
    def id(self) -> str | None:
        """The id of the run that this object submitted."""
        return None if self._submitted is None else self._submitted.id

    def submit(self) -> views.Submitted:
        """Uploads the package and submits the job; returns when the server has accepted it durably."""
        engine = self._engine()
        if self._uses_kubeconfig():
            self._submitted = self._create_objects()
            return self._submitted
        self._check_server(engine)
        submitted = self.client.job_submit(self._package(), entry=self.entry_point, **self._request())
        if engine == "local" and self.runtime_image is not None:
            note = f"the image `{self.runtime_image}` is recorded, but not run: workers are processes of this machine"
            submitted = dataclasses.replace(submitted, notes=[*submitted.notes, note])
        self._submitted = submitted
        return submitted

    def _request(self) -> dict[str, Any]:
        return {
            "name": self.job_name,
            "image": self.runtime_image,
            "memory": self.memory,
            "cpu": self.cpu_nums,
            "gpu": self.gpu_nums,
            "parallelism": self.trainers,
            "pservers": self.pservers,
            **self._fields,
        }

    def _uses_kubeconfig(self) -> bool:
        """The program is in the image, this machine's own server runs no images, and there is a cluster."""
        return self._is_in_image() and self.client.is_embedded and _kubeconfig.find() is not None

    def _create_objects(self) -> views.Submitted:
        """A job without a server of ours: Kubernetes runs it, and `kubectl` shows it."""
        folder = shlex.quote(os.fspath(self.trainer_package_path or "."))
        entry = f"cd {folder} && {self.entry_point}"
        planned = self.client.job_submit(None, dry_run=True, manifests=True, entry=entry, **self._request())
        objects = planned.manifests
        if self.cephfs_volume is not None:
            objects = _cephfs.add(self.cephfs_volume, objects)
        context, namespace = _kubeconfig.create(self.job_name, objects, self.namespace)
        note = (
            f"created in the context `{context}` of the kubeconfig `{_kubeconfig.find()}`; "
            f"`kubectl logs -n {namespace} -l paddle-job={self.job_name}` shows its trainers"
        )
        print(f"{self.job_name}: {note}", file=sys.stderr)
        return dataclasses.replace(planned, notes=[*planned.notes, note])

    def status(self) -> str:
        """`Pending`, `Starting`, `Running`, `Stopping`, `Succeeded`, `Failed`, `Killed` or `Lost`."""
        return self.detail().job.status

    def detail(self) -> views.JobDetail:
        """The job, its workers and its events."""
        return self.client.job_get(self._reference())

    def logs(
        self,
        follow: bool = False,
        *,
        lines: int | None = None,
        worker: str | None = None,
        role: str | None = None,
        since: datetime | timedelta | None = None,
    ) -> Logs:
        """Yields the lines of all workers; with `follow` until the job has ended, each line once."""
        reference = self._reference()
        return self.client.job_logs(
            reference, follow=follow, lines=lines, worker=worker, role=role, since=since
        )

    def wait(self, timeout: float | None = None, *, check: bool = False) -> str:
        """Returns the final status. Raises `TimeoutError` if the job has not ended after `timeout` seconds and, with
        `check`, `JobFailedError` if it did not succeed.
        """
        job = self.client.job_wait(self._reference(), timeout=timeout).job
        if not job.is_final:
            raise TimeoutError(f"{job.name} is still {job.status} after {timeout} s")
        if check and job.status != "Succeeded":
            reason = f": {job.message}" if job.message else ""
            raise JobFailedError(f"{job.name} {job.status}{reason}", job=job)
        return job.status

    def kill(self, *, remove: bool = False) -> views.Killed:
        """Stops the job; its workers terminate in the background. `remove` also removes it from the history."""
        return self.client.job_kill(self._reference(), remove=remove)

    def _reference(self) -> str:
        """The run that was submitted here, else the latest of that name."""
        return self.id or self.job_name

    def _engine(self) -> str:
        try:
            return self.client.server_get().engine
        except NoServerError as error:
            raise _only_kubeconfig(self.job_name) or error from None

    def _check_server(self, engine: str) -> None:
        """Says all that this server lacks for the job, before anything is sent."""
        missing = []
        if self.cephfs_volume is not None:
            missing.append(f"the CephFS volume of `{self.cephfs_volume.monitors_addr}`")
        if self._is_in_image() and not os.path.isdir(os.fspath(self.trainer_package_path or "")):
            missing.append(f"the folder `{self.trainer_package_path}` of the image `{self.runtime_image}`")
        if missing:
            raise _without_cluster(self.job_name, missing, engine)
        self._check_namespace()

    def _check_namespace(self) -> None:
        """On one machine a namespace is only recorded; elsewhere it must be the caller's own."""
        if self.namespace is None or self.client.is_embedded:
            return
        own = self.client.whoami_get().namespace
        if self.namespace != own:
            raise NotPossibleHere(
                f"cannot submit `{self.job_name}` to the namespace `{self.namespace}`: yours is `{own}`",
                hints=["leave out `namespace`, or use a datacenter where it is yours"],
            )

    def _is_in_image(self) -> bool:
        """A path from the root that this machine does not have, or has because it is a container of that image."""
        path = self.trainer_package_path
        if path is None or self.runtime_image is None:
            return False
        place = os.fspath(path)
        if not os.path.isabs(place) or _is_on_cluster(place):
            return False
        return not os.path.isdir(place) or _is_container()

    def _package(self) -> str | os.PathLike[str]:
        if self.trainer_package_path is not None:
            return self.trainer_package_path
        return _own_folder(self.job_name)


def dist_train(trainer: Callable[[], T], paddle_job: PaddleJob) -> T | PaddleJob:
    """Trains when it runs inside a worker of a job, and submits the job when it runs outside.

    In a worker it returns the result of `trainer()`, elsewhere `paddle_job`, submitted.
    """
    if not callable(trainer):
        raise TypeError(f"`trainer` must be a function without arguments, not {type(trainer).__name__}")
    if _is_worker():
        return trainer()
    submitted = paddle_job.submit()
    for note in submitted.notes:
        print(f"note: {note}", file=sys.stderr)
    print(
        f"{submitted.job.name} is submitted ({submitted.id}); `paddlectl logs -f {submitted.job.name}` follows it",
        file=sys.stderr,
    )
    return paddle_job


def _is_worker() -> bool:
    """Every worker, on any engine, has both; a shell of the user has not."""
    return bool(os.environ.get("PADDLE_JOB_NAME")) and bool(os.environ.get("TRAINER_ID"))


def _one_of(name: str, value: Any, other_name: str, other: Any, *, default: Any) -> Any:
    """The value of an argument with two spellings."""
    if value is not None and other is not None and value != other:
        raise TypeError(f"`{name}` and `{other_name}` are the same and differ: {value} and {other}")
    found = other if value is None else value
    return default if found is None else found


def _cards(gpu_nums: int | None, use_gpu: bool | None, default: int = 0) -> int:
    if use_gpu is False and gpu_nums:
        raise ValueError(f"`use_gpu=False` and `gpu_nums={gpu_nums}` contradict each other")
    if gpu_nums is None:
        return default if use_gpu is None else int(use_gpu)
    if use_gpu and gpu_nums == 0:
        raise ValueError("`use_gpu=True` and `gpu_nums=0` contradict each other")
    return gpu_nums


def _is_container() -> bool:
    """Whether this program runs in a container, where what it has is what its image has."""
    return any(map(os.path.exists, ["/.dockerenv", "/run/.containerenv", _IMAGE_MARK]))


def _is_on_cluster(place: str) -> bool:
    return place == "/pfs" or place.startswith("/pfs/")


def _own_folder(job_name: str) -> Path:
    """The folder of the program that runs now. Never a home or the root: nobody means to send those."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    hint = 'name the folder of the program: `trainer_package_path="./my_package"`'
    if main is None:
        raise PackageError(
            f"cannot submit `{job_name}`: no package is named, and no program file runs", hints=[hint]
        )
    folder = Path(main).resolve().parent
    if folder == Path.home().resolve() or folder == folder.parent:
        raise PackageError(
            f"cannot submit `{job_name}`: no package is named, and `{folder}` is too much for one", hints=[hint]
        )
    return folder


def _without_cluster(job_name: str, missing: list[str], engine: str) -> NotPossibleHere:
    return NotPossibleHere(
        f"cannot submit `{job_name}`: {' and '.join(missing)} need a Kubernetes cluster reached by a kubeconfig, "
        f"but this job would go to a server (engine `{engine}`)",
        hints=[
            "leave out `cephfs_volume` and `runtime_image`, and name a folder of this machine as "
            "`trainer_package_path`: it is uploaded",
            "upload the data to `/pfs` with `paddlectl cp`: every worker can read it there",
        ],
    )


def _only_kubeconfig(job_name: str) -> NotPossibleHere | None:
    """What is said where there is a kubeconfig and nothing else; `None` where there is none."""
    return None if _kubeconfig.find() is None else _kubeconfig.program_is_missing(job_name)
