"""Creates the objects of a job in the user's own cluster, where no PaddleCloud server is configured.

The native program does the work: it needs no `kubectl`, which images for workers do not have.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from paddlecloud import _program
from paddlecloud.errors import NotPossibleHere

_LIMIT_SECONDS = 120


def find() -> str | None:
    """The kubeconfig of this user, if there is one."""
    named = os.environ.get("KUBECONFIG") or os.path.join(os.path.expanduser("~"), ".kube", "config")
    return next((path for path in named.split(os.pathsep) if path and os.path.isfile(path)), None)


def create(job_name: str, objects: list[dict[str, Any]], namespace: str | None) -> tuple[str, str]:
    """Creates all of the objects or none; returns the kubeconfig's context and the namespace that were used."""
    program = _program.find() or shutil.which("paddlectl")
    if program is None:
        raise program_is_missing(job_name)
    words = ["paddlecloud-server", "create-objects"]
    if namespace is not None:
        words += ["--namespace", namespace]
    try:
        done = subprocess.run(
            words,
            executable=program,
            input=json.dumps(objects),
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        problem, hints = f"the cluster did not answer within {_LIMIT_SECONDS} s", []
    else:
        if done.returncode == 0:
            context, used = done.stdout.splitlines()
            return context, used
        said = done.stderr.splitlines()
        problem = next((line.removeprefix("error: ") for line in said if line.startswith("error: ")), done.stderr.strip())
        hints = [line.removeprefix("hint: ") for line in said if line.startswith("hint: ")]
    raise NotPossibleHere(
        f"cannot submit `{job_name}` to the cluster of the kubeconfig `{find()}`: {problem}", hints=hints
    )


def program_is_missing(job_name: str) -> NotPossibleHere:
    return NotPossibleHere(
        f"cannot submit `{job_name}` with the kubeconfig `{find()}` alone: `paddlectl`, which plans the job, was not found",
        hints=[
            "put `paddlectl` on the `PATH`: the job is then sent to the kubeconfig's cluster",
            "or describe a PaddleCloud server in `~/.paddle/config`: name, username, password and endpoint",
        ],
    )
