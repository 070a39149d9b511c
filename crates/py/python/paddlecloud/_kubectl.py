"""Creates the objects of a job in the user's own cluster, where no PaddleCloud server is configured.

`kubectl` does the work: it knows every way of a kubeconfig to log in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from paddlecloud.errors import NotPossibleHere

_LIMIT_SECONDS = 60


def kubeconfig() -> str | None:
    """The file that `kubectl` would use, if there is one."""
    named = os.environ.get("KUBECONFIG") or os.path.join(os.path.expanduser("~"), ".kube", "config")
    return next((path for path in named.split(os.pathsep) if path and os.path.isfile(path)), None)


def apply(job_name: str, objects: list[dict[str, Any]], namespace: str | None) -> str:
    """Creates the objects; returns the name of the kubeconfig context that was used."""
    program = shutil.which("kubectl")
    if program is None:
        raise NotPossibleHere(
            f"cannot submit `{job_name}` with the kubeconfig alone: `kubectl` is not in PATH",
            hints=[
                "install `kubectl`",
                "or describe a PaddleCloud server in `~/.paddle/config`: name, username, password and endpoint",
            ],
        )
    context = _run(job_name, [program, "config", "current-context"]).strip()
    words = [program, "--context", context, "apply", "-f", "-"]
    if namespace is not None:
        words[3:3] = ["--namespace", namespace]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    _run(job_name, words, text)
    return context


def _run(job_name: str, words: list[str], text: str = "") -> str:
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        problem = f"`kubectl` did not answer within {_LIMIT_SECONDS} s"
    else:
        if done.returncode == 0:
            return done.stdout
        problem = done.stderr.strip() or f"`kubectl` ended with code {done.returncode}"
    raise NotPossibleHere(
        f"cannot submit `{job_name}` to the cluster of the kubeconfig: {problem}",
        hints=["try `kubectl get pods` with the same kubeconfig"],
    )
