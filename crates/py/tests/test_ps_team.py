"""Several trainers and several parameter servers of this process: results, limits, and waiting for each other."""

import threading

import numpy as np
import pytest
from test_ps_optimizers import adam, momentum, sgd

from paddlecloud import _native, ps
from paddlecloud.ps.job import Job, Watchdog
from paddlecloud.ps.session import Session

F = np.float32


class Team:
    """Servers for some trainers."""

    def __init__(self, trainers=1, servers=1, *, mode="sync", reduce="mean", memory=None, **options):
        memory = {} if memory is None else {"memory": memory}
        self.addresses = [_native.ps_serve(trainers, "hush", index, servers, **memory) for index in range(servers)]
        self.trainers, self.mode, self.reduce, self.options = trainers, mode, reduce, options

    def session(self, trainer=0, attempt=1):
        job = Job(self.addresses, trainer, self.trainers, attempt, "hush")
        watchdog = Watchdog(0)
        native = _native.PsClient(
            *(job.addresses, trainer, self.trainers, attempt, "hush", self.mode, 0, self.reduce == "mean", "", 0, 20.0),
            watchdog.on_wait,
            **self.options,
        )
        return Session(native, job, self.mode, watchdog)

    def each(self, work):
        """Runs `work(session)` for every trainer in a thread of its own."""
        results, errors = [None] * self.trainers, []

        def run(trainer):
            try:
                results[trainer] = work(self.session(trainer))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(trainer,), daemon=True) for trainer in range(self.trainers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        if errors:
            raise errors[0]
        assert not any(thread.is_alive() for thread in threads)
        return results


SIZE = 70_000
IDS = np.array([3, 2**63 + 1, 2**64 - 1, 77], np.uint64)
RULES = {"sgd": (sgd, ps.SGD(0.05)), "momentum": (momentum, ps.Momentum(0.05)), "adam": (adam, ps.Adam(0.05))}


def gradient(values, trainer, step):
    noise = np.random.default_rng(1000 * trainer + step).normal(0, 1, values.shape).astype(F)
    return F(0.1) * values + noise


def one_process(rule, start, steps):
    """Both trainers' gradients summed in order of their ids, and an update by numpy."""
    w, state = start.copy(), {}
    for step in range(steps):
        w = rule(w, gradient(w, 0, step) + gradient(w, 1, step), state, F(0.05)).astype(F)
    return w


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("name", RULES)
def test_two_trainers_have_the_bits_of_one_process(name, servers):
    rule, optimizer = RULES[name]
    start = np.random.default_rng(5).normal(0, 1, SIZE).astype(F)

    def train(session):
        session.create("w", start if session.trainer == 0 else np.zeros(SIZE, F), optimizer)
        session.table("emb", 4, optimizer, init=ps.Uniform(-1, 1), seed=2)
        first = session.lookup("emb", IDS).copy()
        for step in session.steps(6):
            session.push({"w": gradient(session.pull("w"), session.trainer, step)})
            session.push_rows("emb", IDS, gradient(session.lookup("emb", IDS), session.trainer, step))
        return session.pull("w"), session.lookup("emb", IDS, train=False), first

    for w, rows, first in Team(2, servers, reduce="sum").each(train):
        assert w.tobytes() == one_process(rule, start, 6).tobytes()
        assert rows.tobytes() == one_process(rule, first, 6).tobytes()


@pytest.mark.parametrize(("reduce", "expected"), [("sum", [-3, -4, -5]), ("mean", [-1.5, -2.5, -3.5])])
def test_a_trainer_with_fewer_batches_leaves_early(reduce, expected):
    def train(session):
        session.create("w", np.zeros(1, F), ps.SGD(1.0))
        seen = []
        for _ in session.steps(3 if session.trainer == 0 else 1):
            session.push({"w": np.full(1, 1 + session.trainer, F)})
            seen.append(session.end_step(["w"])["w"].item())
        return seen

    assert Team(2, 2, reduce=reduce).each(train)[0] == expected


class TestLimits:
    def test_a_tensor_beyond_the_memory_is_refused_by_name_and_size(self):
        session = Team(memory=1 << 20).session()
        with pytest.raises(ps.OutOfMemory, match="`huge` needs 8000000 more bytes, but 0 of the 1048576 bytes"):
            session.create("huge", np.zeros(1_000_000, F), ps.Momentum(0.1))
        session.create("small", np.zeros(10, F))

    def test_rows_beyond_the_memory_are_refused_by_name_and_the_server_lives(self):
        session = Team(memory=4 << 20, mode="async").session()
        session.table("emb", 64, ps.Adagrad(0.1))
        with pytest.raises(ps.OutOfMemory, match=r"`emb` needs \d+ more bytes, but \d+ of the 4194304 bytes"):
            for start in range(0, 1_000_000, 1000):
                session.lookup("emb", np.arange(start, start + 1000))
        held = session.stat()[0]
        assert 1000 < held["tensors"][0]["rows"] < 10_000
        assert held["memory"]["used"] <= 4 << 20
        session.lookup("emb", [1, 2, 3])

    def rows(self, session):
        return session.stat()[0]["tensors"][0]["rows"]

    def test_a_row_is_admitted_after_some_sightings(self):
        session = Team(mode="async").session()
        session.table("emb", 2, ps.SGD(1.0), init=ps.Zero(), admit_after=3)
        for expected in (0, 0, 1):
            session.lookup("emb", [9])
            assert self.rows(session) == expected
        session.push_rows("emb", [9, 10], np.ones((2, 2), F))
        assert session.lookup("emb", [9, 10], train=False).tolist() == [[-1, -1], [0, 0]]

    @pytest.mark.parametrize("limit", [{"max_rows": 64}, {"max_bytes": 64 * (4 * 8 + 20)}], ids=str)
    def test_a_full_table_refuses_or_drops_the_least_recently_used(self, limit):
        session = Team(mode="async").session()
        session.table("refuses", 8, **limit)
        with pytest.raises(ps.OutOfMemory, match="`refuses`"):
            session.lookup("refuses", range(1000))
        session = Team().session()
        session.table("drops", 8, evict=True, **limit)
        for step in session.steps(20):
            session.lookup("drops", [7, *range(100 * step, 100 * step + 20)])
        assert self.rows(session) <= 70
        # Seen at every step, so it stays.
        values = session.lookup("drops", [7], train=False)
        assert values.shape == (1, 8)

    def test_rows_unseen_for_some_steps_are_dropped(self):
        session = Team().session()
        session.table("emb", 2, ps.SGD(1.0), init=ps.Zero(), idle_steps=3)
        for step in session.steps(10):
            session.lookup("emb", [1] if step else [1, 2])
        assert self.rows(session) == 1


class TestWaiting:
    def test_a_barrier_is_passed_when_all_trainers_have_reached_it(self):
        team = Team(2)
        passed = threading.Event()

        def first():
            team.session(0).barrier()
            passed.set()

        threading.Thread(target=first, daemon=True).start()
        # Python runs on meanwhile: a call holds no lock of the interpreter.
        second = team.session(1)
        assert not passed.is_set()
        second.barrier()
        assert passed.wait(30)

    def test_calls_run_in_the_background(self):
        session = Team(mode="async").session()
        session.create("w", np.zeros(2, F), ps.SGD(1.0))
        session.push_later({"w": np.ones(2, F)}).result(30)
        assert session.pull_later("w").result(30).tolist() == [-1, -1]

    def test_pulls_wait_for_the_initial_values_of_trainer_0(self):
        team = Team(2)
        pulled = []

        def second():
            session = team.session(1)
            session.create("w", np.full(3, 9, F))
            pulled.append(session.pull("w").tolist())

        thread = threading.Thread(target=second, daemon=True)
        thread.start()
        team.session(0).create("w", np.ones(3, F))
        thread.join(30)
        assert pulled == [[1, 1, 1]]


@pytest.mark.parametrize(("kind", "error"), [("bf16", 1e-2), ("fp16", 1e-3), ("topk", 0.5)])
def test_training_with_small_gradients_ends_near_the_same_place(kind, error):
    def train(session):
        session.create("w", np.zeros(100, F), ps.SGD(0.1))
        session.table("emb", 4, ps.SGD(0.1), init=ps.Zero())
        target = np.linspace(-1, 1, 100, dtype=F)
        for _ in session.steps(150):
            session.push({"w": session.pull("w") - target})
            session.push_rows("emb", [1, 2], session.lookup("emb", [1, 2]) - F(0.5))
        return np.abs(session.pull("w") - target).max(), np.abs(session.lookup("emb", [1, 2]) - 0.5).max()

    for dense, rows in Team(2, 2, gradients=kind, keep=0.1).each(train):
        assert dense < error
        assert rows < 1e-2


def test_an_unknown_kind_of_gradients_is_refused():
    with pytest.raises(ValueError, match="`gradients` must be 'fp32', 'bf16', 'fp16' or 'topk', not 'int8'"):
        ps.connect(gradients="int8")
