"""What the tests share: files of known records, and Python programs of their own process."""

import os
import subprocess
import sys

import pytest
import recordio

LIMIT_SECONDS = 300


@pytest.fixture
def write_records(tmp_path):
    """Writes records to a file of the test's folder and returns its name."""

    def write(records, name="data-00000", **options):
        path = str(tmp_path / name)
        with recordio.writer(path, **options) as out:
            for record in records:
                out.write(record)
        return path

    return write


@pytest.fixture
def run_python(tmp_path):
    """Runs a program in a Python of its own, in the test's folder, and returns what it printed."""

    def run(program, *arguments, flags=(), **environment):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PADDLE", "PYTHON", "TRAINER"))}
        done = subprocess.run(
            [sys.executable, *flags, "-c", program, *arguments],
            cwd=tmp_path,
            env={**clean, **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
