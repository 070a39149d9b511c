"""`session.batches`: a trainer that is restarted, rolled back or resumed ends with the bits of the undisturbed run."""

import random

import numpy as np
import pytest

from paddlecloud import _native, ps
from paddlecloud.ps.job import Job, Watchdog
from paddlecloud.ps.session import Session

F = np.float32
ROWS, WIDTH, EPOCHS = 23, 4, 3


class Killed(Exception):
    """The trainer's process ends here."""


class Servers:
    """Parameter servers that outlive their one trainer."""

    def __init__(self, servers=2, checkpoints="", resume=""):
        self.addresses = [_native.ps_serve(1, "hush", index, servers) for index in range(servers)]
        self.attempt = 0
        self.checkpoints, self.resume = str(checkpoints), str(resume)

    def session(self):
        self.attempt += 1
        job = Job(self.addresses, 0, 1, self.attempt, "hush", resume=self.resume)
        watchdog = Watchdog(0)
        native = _native.PsClient(
            *(job.addresses, 0, 1, self.attempt, "hush", "sync", 0, True, self.checkpoints, 4, 20.0, watchdog.on_wait),
            resume=self.resume,
        )
        return Session(native, job, "sync", watchdog)


class Shuffled:
    """A loader with the order of each epoch from numpy's global generator, and noise from Python's in each sample."""

    def __init__(self, batch=3):
        self.batch = batch

    def __len__(self):
        return -(-ROWS // self.batch)

    def __iter__(self):
        order = np.random.permutation(ROWS)
        for start in range(0, ROWS, self.batch):
            chosen = order[start : start + self.batch]
            yield chosen, np.array([random.random() for _ in chosen], F)


class Decay:
    """A scheduler."""

    def __init__(self):
        self.rate, self.steps = 0.5, 0

    def step(self):
        self.steps += 1
        self.rate *= 0.9

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)


class Program:
    """A trainer's program: run again from the top after every kill."""

    def __init__(self, kill=None, accumulate=1, twice=False, by_index=True):
        self.kill, self.accumulate, self.twice, self.by_index = kill, accumulate, twice, by_index
        self.seen = []

    def at(self, point, batch):
        if self.kill == (point, batch):
            self.kill = None
            raise Killed(point)

    def run(self, servers):
        while True:
            try:
                return self.train(servers.session())
            except Killed:
                continue

    def train(self, session):
        random.seed(1)
        np.random.seed(2)
        own, schedule, mean = np.random.default_rng(3), Decay(), Decay()
        session.create("w", np.zeros(WIDTH, F), ps.Adam(0.1))
        session.table("emb", WIDTH, ps.Adagrad(0.1), init=ps.Uniform(-1, 1), seed=5)
        w = session.pull("w")
        gradient, count = np.zeros(WIDTH, F), 0
        loop = session.batches(Shuffled(), EPOCHS, keep=[schedule, mean, own])
        for ids, noise in loop:
            number = loop.epoch * len(Shuffled()) + loop.index
            count += 1
            self.at("before", number)
            rows = session.lookup("emb", ids)
            dropped = np.random.random(WIDTH) < 0.5
            gradient += (rows.sum(axis=0) + w) * dropped + noise.sum() + F(own.normal())
            session.push_rows("emb", ids, rows + noise[:, None] + w)
            if (loop.index + 1 if self.by_index else count) % self.accumulate:
                continue
            self.at("pushed", number)
            session.push({"w": gradient}, lr=schedule.rate)
            mean.rate = mean.rate * 0.9 + float(gradient.sum())
            self.at("ready", number)
            session.end_step(["w"], out={"w": w})
            self.at("ended", number)
            if self.twice:
                session.push({"w": w + noise.sum()})
                session.end_step(["w"], out={"w": w})
                self.at("ended twice", number)
            gradient[:] = 0
            schedule.step()
            self.seen.append((loop.epoch, loop.index, ids.tolist(), float(random.random())))
            self.at("after", number)
        rows = session.lookup("emb", np.arange(ROWS), train=False)
        return w.tobytes(), rows.tobytes(), schedule.rate, mean.rate, own.random(), random.random(), np.random.random()


LAST = EPOCHS * len(Shuffled()) - 1


@pytest.fixture(scope="module")
def undisturbed():
    found = {}

    def run(**options):
        key = tuple(sorted(options.items()))
        if key not in found:
            program = Program(**options)
            found[key] = program.run(Servers()), program.seen
        return found[key]

    return run


@pytest.mark.parametrize("batch", [0, 1, 7, 8, 13, LAST])
@pytest.mark.parametrize("point", ["before", "pushed", "ready", "ended", "after"])
def test_a_killed_trainer_ends_with_the_bits_of_an_undisturbed_one(undisturbed, point, batch):
    program = Program((point, batch))
    assert program.run(Servers()) == undisturbed()[0]
    assert program.kill is None


@pytest.mark.parametrize("batch", [0, 2, 3, 5, 8, 11, LAST])
@pytest.mark.parametrize("point", ["before", "pushed", "ended", "after"])
@pytest.mark.parametrize("by_index", [True, False])
def test_accumulated_batches_are_repeated_together(undisturbed, point, batch, by_index):
    """Also where a step has batches of two epochs, and where the program counts from 0 again."""
    options = {"accumulate": 3, "by_index": by_index}
    program = Program((point, batch), **options)
    assert program.run(Servers()) == undisturbed(**options)[0]


@pytest.mark.parametrize("batch", [0, 4, LAST])
@pytest.mark.parametrize("point", ["ready", "ended", "ended twice", "after"])
def test_a_body_may_end_several_steps(undisturbed, point, batch):
    program = Program((point, batch), twice=True)
    assert program.run(Servers()) == undisturbed(twice=True)[0]


@pytest.mark.parametrize("second", [("after", 6), ("ended", 5), ("before", 7), ("pushed", 12)])
def test_a_trainer_may_be_killed_again(undisturbed, second):
    program = Program(("ended", 5))
    servers = Servers()
    with pytest.raises(Killed):
        program.train(servers.session())
    program.kill = second
    assert program.run(servers) == undisturbed()[0]


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("stop", [("pushed", 9), ("ended", 11), ("after", LAST)])
def test_a_resumed_run_ends_with_the_bits_of_an_unbroken_one(undisturbed, tmp_path, stop, servers):
    program = Program(stop)
    first = Servers(2, tmp_path / "first")
    with pytest.raises(Killed):
        program.train(first.session())
    # Also when the first trainer of the new run is killed at once, and again later.
    program.kill = ("pushed", 12)
    resumed = Servers(servers, tmp_path / "second", tmp_path / "first")
    assert program.run(resumed) == undisturbed()[0]


def test_a_run_is_resumed_by_its_name(tmp_path, run_python):
    program = """
import sys
import numpy as np
from paddlecloud import ps

stop, resume = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
session = ps.connect(checkpoint_every=2, resume=resume, stall=0)
np.random.seed(1)
session.create("w", np.full(3, 5, np.float32), ps.Adam(0.1))
for sample in session.batches(list(range(10)), 1):
    w = session.push_pull({"w": np.random.normal(size=3).astype(np.float32) + sample})["w"]
    if session.step == stop:
        break
print("found", session.run, session.restarted, session.step, w.tobytes().hex())
"""

    def run(*arguments):
        lines = run_python(program, *arguments).splitlines()
        return next(line.split()[1:] for line in lines if line.startswith("found "))

    whole, *_, expected = run("10")
    first, *said = run("7")
    assert said[:2] == ["False", "7"]
    second, *said = run("10", first)
    assert said == ["True", "10", expected]
    assert sorted(path.name for path in (tmp_path / "output" / "checkpoints").iterdir()) == sorted([whole, first, second])


def restarted(body, loader, keep=(), attempts=2):
    """Runs `body(batch)` in a loop over one epoch that each attempt but the last leaves by `Killed`."""
    servers = Servers(1)
    for attempt in range(attempts):
        session = servers.session()
        session.create("w", np.zeros(1, F), ps.SGD(1.0))
        loop = session.batches(loader() if callable(loader) else loader, 1, keep)
        try:
            for batch in loop:
                body(session, attempt, batch)
        except Killed:
            continue
    return session


def test_a_step_that_the_body_does_not_end_again_is_named(capfd):
    def body(session, attempt, batch):
        session.push({"w": np.ones(1, F)})
        if attempt == 0 or batch != 1:
            session.end_step()
        if attempt == 0 and batch == 1:
            raise Killed

    assert restarted(body, [0, 1, 2, 3]).pull("w").tolist() == [-4]
    said = capfd.readouterr().err
    assert "resumes at step 2 after batch 1 of epoch 0: its body did not end the step again" in said


def test_a_loader_that_gives_other_batches_is_named(capfd):
    orders = iter([[0, 1, 2, 3], [0, 3, 2, 1]])

    def body(session, attempt, batch):
        session.push_pull({"w": np.ones(1, F)})
        if attempt == 0 and batch == 1:
            raise Killed

    restarted(body, lambda: next(orders))
    assert "its loader gives another batch 1 of epoch 0 than before" in capfd.readouterr().err


def test_a_loader_that_has_become_shorter_is_refused():
    loaders = iter([[0, 1, 2, 3], [0]])

    def body(session, attempt, batch):
        session.push_pull({"w": np.ones(1, F)})
        if attempt == 0 and batch == 2:
            raise Killed

    with pytest.raises(ps.Error, match="the loader has no batch 2 in epoch 0, which it had before step 3"):
        restarted(body, lambda: next(loaders))


def test_a_restarted_program_that_keeps_something_else_is_refused():
    session = (servers := Servers(1)).session()
    session.create("w", np.zeros(1, F))
    for _ in session.batches([1, 2], keep=[Decay()]):
        session.push_pull({"w": np.ones(1, F)})
        break
    with pytest.raises(ps.Error, match="the state of step 1 has random, numpy.random, .*Decay; this program keeps random"):
        next(iter(servers.session().batches([1, 2])))
    with pytest.raises(ps.Error, match="the state of step 1 is that of a program with `batches`"):
        next(servers.session().steps(3, state=bytes, restore=print))


class TestRefusals:
    @pytest.fixture
    def alone(self):
        with ps.connect(stall=0) as session:
            session.create("w", np.zeros(1, F), ps.SGD(1.0))
            yield session

    def test_what_has_no_state_is_refused_by_name(self, alone):
        with pytest.raises(TypeError, match="`keep` cannot keep dict: it has no `state_dict`"):
            alone.batches([1], keep=[{}])

    def test_what_cannot_be_written_is_refused_by_name(self, alone):
        decay = Decay()
        decay.rate = lambda: 1
        with pytest.raises(TypeError, match="`keep` cannot keep Decay: .*lambda"):
            alone.batches([1], keep=[decay])

    def test_a_loader_that_can_be_used_once_is_refused(self, alone):
        with pytest.raises(TypeError, match="can be iterated again and again, not generator"):
            alone.batches(number for number in range(3))
        with pytest.raises(TypeError, match="a loader that can be iterated, not function"):
            alone.batches(lambda: [])

    def test_a_body_that_ends_no_step_is_refused(self, alone):
        with pytest.raises(ps.Error, match="no step was ended in `batches`: call `optimizer.step"):
            for _ in alone.batches([1]):
                alone.push({"w": np.ones(1, F)})

    def test_epochs_one_by_one_are_refused(self, alone):
        for _ in alone.batches([1]):
            alone.push_pull({"w": np.ones(1, F)})
        with pytest.raises(ps.Error, match="this trainer has left: give `batches` all epochs at once"):
            alone.batches([1])

    def test_state_without_restore_is_refused(self, alone):
        with pytest.raises(ValueError, match="`steps` needs both `state` and `restore`, or neither"):
            alone.steps(3, state=bytes)
