"""Trainers whose parameter server is a process that is killed and started again."""

import os
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from paddlecloud import _native, _program, ps
from paddlecloud.ps.job import Job, Watchdog
from paddlecloud.ps.session import Session

F = np.float32
LIMIT_SECONDS = 300


def wait_for_file(path):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"there is no {path}"


class Fragile:
    """A parameter server of its own process, for two trainers."""

    def __init__(self, folder):
        self.folder, self.attempt = folder, 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self):
        self.attempt += 1
        flags = [f"--port={self.port}", "--ports_num_for_sparse=0", "--num_gradient_servers=2"]
        variables = {"PADDLECLOUD_ATTEMPT": f"j_1.pserver-0.{self.attempt}", "PADDLE_PS_SECRET": "hush"}
        self.process = subprocess.Popen(
            ["paddle", "pserver", *flags],
            executable=_program.find(),
            env={**os.environ, **variables, "POD_IP": "127.0.0.1"},
        )

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait_for_checkpoint(self, step):
        wait_for_file(self.folder / f"step-{step:012}" / "server-0-of-1")

    def session(self, trainer):
        job = Job([f"127.0.0.1:{self.port}"], trainer, 2, 1, "hush")
        watchdog = Watchdog(0)
        checkpoints = (str(self.folder), 100)
        native = _native.PsClient(
            *(job.addresses, trainer, 2, 1, "hush", "sync", 0, True, *checkpoints, 60.0, watchdog.on_wait)
        )
        return Session(native, job, "sync", watchdog)


@pytest.fixture
def fragile(tmp_path):
    if _program.find() is None:
        pytest.skip("the wheel was built without the program")
    server = Fragile(tmp_path)
    yield server
    server.kill()


def test_a_rollback_to_the_start_restores_the_state_of_trainers(fragile):
    """Also that of a trainer which has taken its last step and waits for the others."""
    seen = ([], [])
    errors = []

    def train(trainer):
        mine = seen[trainer]

        def restore(state):
            del mine[int(state) :]

        try:
            session = fragile.session(trainer)
            session.create("w", np.zeros(3, F), ps.SGD(1.0))
            total = 3 if trainer == 0 else 1
            for step in session.steps(total, state=lambda: str(len(mine)).encode(), restore=restore):
                mine.append(step)
                session.push({"w": np.ones(3, F)})
                if step == 2 and fragile.attempt == 1:
                    fragile.wait_for_checkpoint(0)
                    fragile.kill()
                    fragile.start()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(trainer,), daemon=True) for trainer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)
    assert seen == ([0, 1, 2], [0])


class Alone:
    """A parameter server of this process, whose one trainer is restarted."""

    def __init__(self):
        self.addresses, self.attempt = [_native.ps_serve(1, "hush")], 0

    def session(self):
        self.attempt += 1
        watchdog = Watchdog(0)
        native = _native.PsClient(
            *(self.addresses, 0, 1, self.attempt, "hush", "sync", 0, True, "", 0, 20.0, watchdog.on_wait)
        )
        session = Session(native, Job(self.addresses, 0, 1, self.attempt, "hush"), "sync", watchdog)
        session.create("w", np.zeros(1, F), ps.SGD(1.0))
        return session


def test_a_restarted_trainer_gets_the_state_of_its_own_step():
    """There is no checkpoint: the bytes travel with the end of each step."""
    servers, drawn = Alone(), []

    def train(session, until):
        source = np.random.default_rng(1)
        keeping = {
            "state": lambda: repr(source.bit_generator.state).encode(),
            "restore": lambda state: setattr(source.bit_generator, "state", eval(state)),
        }
        for step in session.steps(20, **keeping):
            if step == until:
                return
            drawn.append(source.integers(1000))
            session.push({"w": np.ones(1, F)})

    for until in (7, 8, 15, 20):
        train(servers.session(), until)
    assert drawn == np.random.default_rng(1).integers(1000, size=20).tolist()


def test_a_restarted_trainer_does_not_reset_the_model(tmp_path, capfd):
    servers = Alone()
    first = servers.session()
    assert not first.restarted
    first.save(tmp_path / "before")
    first.push_pull({"w": np.ones(1, F)})
    second = servers.session()
    assert second.restarted
    for _ in range(2):
        second.load(tmp_path / "before")
        second.assign("w", np.full(1, 5, F))
    said = capfd.readouterr().err.splitlines()
    words = "paddlecloud.ps: trainer 0 resumes at step 1: `{}` changes nothing, the model stays as it was trained"
    assert said == [words.format("load"), words.format("assign")]
    for step in second.steps(3):
        assert second.pull("w").tolist() == [-step]
        second.push({"w": np.ones(1, F)})
        if step == 2:
            second.assign("w", np.full(1, 5, F))
            assert second.pull("w").tolist() == [5], "training has begun"


def test_a_restarted_trainer_passes_the_barriers_before_its_first_step():
    """The other trainer has passed them and does not come back."""
    addresses = [_native.ps_serve(2, "hush")]

    def session(trainer, attempt):
        watchdog = Watchdog(0)
        arguments = (addresses, trainer, 2, attempt, "hush", "sync", 0, True, "", 0, 20.0, watchdog.on_wait)
        joined = Session(_native.PsClient(*arguments), Job(addresses, trainer, 2, attempt, "hush"), "sync", watchdog)
        joined.create("w", np.zeros(1, F), ps.SGD(1.0))
        return joined

    def both(call, sessions):
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(call, sessions))

    first = [session(0, 1), session(1, 1)]
    both(lambda one: one.barrier(), first)
    both(lambda one: one.push_pull({"w": np.ones(1, F)}), first)
    restarted = session(0, 2)
    restarted.barrier()
    ended = both(lambda one: one.push_pull({"w": np.ones(1, F)})["w"].tolist(), [restarted, first[1]])
    assert ended == [[-2], [-2]]
    both(lambda one: one.barrier(), [restarted, first[1]])


def test_a_trainer_of_a_resumed_run_that_is_restarted_at_once_meets_the_others(tmp_path):
    """It is not at step 0, but nobody has passed the barrier: the other trainer waits for it there."""

    def session(addresses, trainer, attempt, checkpoints, resume=""):
        watchdog = Watchdog(0)
        job = Job(addresses, trainer, 2, attempt, "hush", resume=resume)
        arguments = (addresses, trainer, 2, attempt, "hush", "sync", 0, True, str(tmp_path / checkpoints), 2, 20.0)
        resume = str(tmp_path / resume) if resume else ""
        joined = Session(_native.PsClient(*arguments, watchdog.on_wait, resume=resume), job, "sync", watchdog)
        joined.create("w", np.zeros(1, F), ps.SGD(1.0))
        return joined

    def train(joined):
        for _ in range(3):
            found = joined.push_pull({"w": np.ones(1, F)})["w"].tolist()
        return found, joined.step

    with ThreadPoolExecutor(2) as pool:
        addresses = [_native.ps_serve(2, "hush")]
        first = [session(addresses, trainer, 1, "first") for trainer in range(2)]
        assert list(pool.map(train, first)) == [([-3], 3)] * 2
        wait_for_file(tmp_path / "first" / "step-000000000002" / "server-0-of-1")
        addresses = [_native.ps_serve(2, "hush")]
        killed = session(addresses, 0, 1, "second", "first")
        restarted = session(addresses, 0, 2, "second", "first")
        assert killed.step == restarted.step == 2
        passed = pool.submit(restarted.barrier)
        other = session(addresses, 1, 1, "second", "first")
        assert not passed.done()
        other.barrier()
        passed.result(60)
        assert list(pool.map(train, [restarted, other])) == [([-5], 5)] * 2


def test_what_a_restart_does_not_restore_is_said(capfd):
    servers = Alone()
    servers.session().push_pull({"w": np.ones(1, F)})
    servers.session().push_pull({"w": np.ones(1, F)})
    assert "trainer 0 resumes at step 1. Its own loop, random generators and schedulers do not" in capfd.readouterr().err
    for _ in servers.session().steps(3):
        pass
    assert "resumes at step 2. Its random generators and schedulers do not" in capfd.readouterr().err
