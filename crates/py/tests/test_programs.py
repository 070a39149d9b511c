"""The programs in the wheel: an environment with nothing but the wheel runs the README's first job."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from embedded import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "README.md"
WHEELS = ROOT / "target" / "py" / "wheels"
NAMES = ["paddlectl", "paddlecloud", "paddlecloud-server"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of programs of an environment with the wheel alone."""
    folder = tmp_path_factory.mktemp("only")
    (wheel,) = WHEELS.glob("paddlecloud-*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin" / "pip", "install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run(install, check=True)
    return folder / "bin"


@pytest.fixture
def stranger(programs):
    """Runs shell lines as somebody who has that environment active, in a home of their own."""
    # A socket's path must be short, which pytest's own folders are not.
    home = Path(tempfile.mkdtemp(prefix="pc-"))
    own = {"HOME": str(home), "USER": "stranger", "PATH": f"{programs}:/usr/bin:/bin", "VIRTUAL_ENV": str(programs.parent)}

    class Stranger:
        folder = home

        def start(self, lines, **more):
            return subprocess.Popen(["sh", "-euc", lines], cwd=home, env=own, text=True, stderr=subprocess.PIPE, **more)

        def run(self, lines):
            process = self.start(lines, stdout=subprocess.PIPE)
            out, err = process.communicate(timeout=LIMIT_SECONDS)
            assert process.returncode == 0, f"{lines}\n{out}{err}"
            return out

    try:
        yield Stranger()
    finally:
        subprocess.run(["paddlectl", "server", "stop"], env=own, executable=programs / "paddlectl")
        shutil.rmtree(home, ignore_errors=True)


def readme_lines():
    section = README.read_text().partition("## The first five minutes")[2]
    return section.partition("```sh\n")[2].partition("```")[0]


def test_one_program_answers_to_three_names(stranger, programs):
    for name in NAMES:
        assert f"Usage: {name} " in stranger.run(f"{name} --help")
    assert not (programs / "paddle").exists(), "that name belongs to PaddlePaddle"


def test_the_readmes_first_job_runs(stranger, programs):
    # PaddlePaddle installs a program of this name; a worker finds ours before it.
    theirs = programs / "paddle"
    theirs.write_text("#!/bin/sh\necho theirs\n")
    theirs.chmod(0o755)
    try:
        before, _, after = readme_lines().partition("paddlectl logs -f hello")
        stranger.run(before)
        follower = stranger.start("exec paddlectl logs -f hello", stdout=subprocess.PIPE)
        wanted = {f"trainer {number % 3} reads data/part-{number}" for number in range(6)}
        while wanted:
            line = follower.stdout.readline()
            assert line, f"the log ended before {wanted}: {follower.stderr.read()}"
            wanted = {text for text in wanted if text not in line}
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=LIMIT_SECONDS)
        said = stranger.run(after.partition("\n")[2])
        assert said.count("hello") >= 2, said
        stranger.run(
            'mkdir p && echo > p/x && paddlectl submit -jobname which -parallelism 1 -pservers 0 -entry "paddle version" p'
            " && paddlectl wait which"
        )
        assert "theirs" not in stranger.run("paddlectl logs which")
    finally:
        theirs.unlink()


def test_python_starts_the_server_from_the_wheels_own_program(stranger, programs):
    """Also where the environment is not active, so that `paddlectl` is not on the `PATH`."""
    program = "import paddlecloud; print(paddlecloud.Client().server_get().pid)"
    pid = stranger.run(f"PATH=/usr/bin:/bin {programs}/python -c '{program}'").strip()
    assert os.path.samefile(f"/proc/{pid}/exe", programs / "paddlectl")
