"""What mypy and pyright see of the wheel, in a program as people write it and in the stubs themselves.

The program expects errors too: a `type: ignore` that hides none is an error for both.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parent / "types" / "program.py"
LIMIT_SECONDS = 600


def checker(name):
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed here")


def run(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


@checker("mypy")
def test_mypy_knows_the_types_of_a_program(tmp_path):
    # PaddlePaddle's own code is none of ours.
    done = run(tmp_path, "mypy", "--strict", "--follow-imports=silent", str(PROGRAM))
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n"), done.stdout + done.stderr


@checker("pyright")
def test_pyright_knows_the_types_of_a_program(tmp_path):
    settings = {
        "include": [str(PROGRAM)],
        "typeCheckingMode": "strict",
        # Our modules of that name are made by a finder, which no checker runs.
        "reportMissingModuleSource": "none",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = run(tmp_path, "pyright", "--pythonpath", sys.executable)
    if "0 errors" not in done.stdout and "Error: getaddrinfo" in done.stdout + done.stderr:
        pytest.skip("pyright fetches itself from npm, which cannot be reached here")
    assert done.returncode == 0, done.stdout + done.stderr


@checker("mypy")
def test_the_stubs_say_what_the_modules_have(tmp_path):
    done = run(tmp_path, "mypy.stubtest", "paddle.v2", "paddle.job", "recordio", "--ignore-disjoint-bases")
    assert done.returncode == 0, done.stdout + done.stderr
