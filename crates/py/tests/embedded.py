"""A server of the tests' own: the real program, in a home that is gone afterwards."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

import paddlecloud
from paddlecloud.errors import PaddleCloudError

_BUILT = Path(__file__).resolve().parents[3] / "target" / "debug" / "paddlecloud"
# The program under test, read before the tests' own environment hides the variable.
PROGRAM = Path(os.environ.get("PADDLECLOUD_TEST_PROGRAM", _BUILT))
LIMIT_SECONDS = 300


@pytest.fixture(scope="module")
def home():
    """A home without a configuration; the embedded server that tests start there is stopped at the end."""
    assert PROGRAM.is_file(), f"build the program first: `cargo build` makes {PROGRAM}"
    # A socket's path must be short, which pytest's own folders are not.
    folder = Path(tempfile.mkdtemp(prefix="pc-"))
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("PADDLE", "TRAINER", "KUBECONFIG")):
                patch.delenv(name)
        patch.setenv("HOME", str(folder))
        patch.setenv("PADDLECLOUD_HOME", str(folder / ".paddle"))
        patch.setenv("PADDLECLOUD_PROGRAM", str(PROGRAM))
        try:
            yield folder
        finally:
            try:
                if (folder / ".paddle" / "local" / "server.sock").exists():
                    stop_all()
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def stop_all():
    """Ends the jobs that a test left, then the server."""
    with paddlecloud.Client() as client:
        for job in client.jobs_list().jobs:
            try:
                client.job_kill(job.id)
                client.job_wait(job.id, timeout=LIMIT_SECONDS)
            except PaddleCloudError:
                pass  # It ended by itself.
        client.server_stop()


@pytest.fixture
def package(tmp_path):
    """Makes a package of one program, `train.py`."""

    def make(program, name="demo"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(program)
        return folder

    return make


ONE_TRAINER = {"entry": "python3 train.py", "pservers": 0, "parallelism": 1, "memory": "128Mi", "cpu": "100m"}
ENDLESS = "import time\nprint('up', flush=True)\ntime.sleep(3600)\n"
