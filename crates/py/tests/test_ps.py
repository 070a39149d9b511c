"""`paddlecloud.ps`: a trainer with a parameter server in its own process, and several with real ones."""

import gc
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from paddlecloud import _native, ps
from paddlecloud.ps import arrays
from paddlecloud.ps.job import Job, Watchdog, attempt_number
from paddlecloud.ps.session import Session

F = np.float32


@pytest.fixture
def alone():
    with ps.connect(stall=0) as session:
        yield session


def team(trainers, mode="sync", reduce="mean"):
    """Sessions of several trainers on one server."""
    address = _native.ps_serve(trainers, "hush")

    def session(trainer, attempt=1):
        job = Job([address], trainer, trainers, attempt, "hush")
        watchdog = Watchdog(0)
        native = _native.PsClient(
            job.addresses, trainer, trainers, attempt, "hush", mode, 0, reduce == "mean", "", 0, 10.0, watchdog.on_wait
        )
        return Session(native, job, mode, watchdog)

    return session


def in_threads(count, work):
    results, errors = [None] * count, []

    def run(number):
        try:
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    return results


class TestDense:
    def test_a_step_is_a_push_and_a_pull(self, alone):
        alone.create("w", np.ones((2, 3), F), ps.SGD(0.5))
        assert alone.pull("w").shape == (2, 3)
        after = alone.push_pull({"w": np.full((2, 3), 2, F)})
        assert (after["w"] == 0).all()
        assert alone.step == 1

    def test_pull_fills_the_array_it_is_given(self, alone):
        alone.create("w", np.arange(5, dtype=F), ps.SGD(0.5))
        out = np.zeros(5, F)
        assert alone.pull("w", out=out) is out
        assert (out == np.arange(5)).all()
        with pytest.raises(TypeError, match="must be contiguous float32, not float64"):
            alone.pull("w", out=np.zeros(5))

    def test_all_tensors_are_pulled_by_name(self, alone):
        alone.create("w", np.ones(2, F))
        alone.create("b", np.zeros(1, F))
        assert {name: value.tolist() for name, value in alone.pull().items()} == {"w": [1, 1], "b": [0]}

    def test_steps_count_and_end(self, alone):
        alone.create("w", np.zeros(1, F), ps.SGD(1.0))
        for step in alone.steps(3):
            assert alone.step == step
            alone.push({"w": np.ones(1, F)})
        assert alone.pull("w").tolist() == [-3]

    def test_a_rate_comes_with_a_push_or_from_a_schedule(self, alone):
        alone.create("w", np.zeros(1, F), ps.SGD(ps.Piecewise(1.0, ((1, 0.5),))))
        gradient = {"w": np.ones(1, F)}
        assert alone.push_pull(gradient)["w"] == [-1]
        assert alone.push_pull(gradient)["w"] == [-1.5]
        assert alone.push_pull(gradient, lr=10.0)["w"] == [-11.5]

    def test_nan_is_refused_by_name(self, alone):
        alone.create("w", np.zeros(2, F))
        with pytest.raises(ps.NotFinite, match="trainer 0 sent NaN or infinite values for `w`"):
            alone.push({"w": np.array([0, np.nan], F)})

    def test_mistakes_are_named(self, alone):
        alone.create("w", np.zeros(2, F))
        with pytest.raises(ValueError, match="there is no tensor `v`"):
            alone.pull("v")
        with pytest.raises(ValueError, match="`w` has 2 elements, not 3"):
            alone.push({"w": np.zeros(3, F)})
        with pytest.raises(ValueError, match="there is no table `w`"):
            alone.lookup("w", [1])
        with pytest.raises(ps.Error, match=r"`w` is declared as shape \[2\]; another declaration says shape \[5\]"):
            alone.create("w", np.zeros(5, F))

    def test_other_arrays_are_copied_and_that_is_said_once(self, alone, capfd):
        arrays._said.clear()
        alone.create("w", np.zeros(2, F), ps.SGD(1.0))
        for _ in range(2):
            alone.push({"w": np.ones(2)})
        assert capfd.readouterr().err == "paddlecloud.ps: `w` is float64 and is copied at every push\n"

    def test_arrays_are_used_in_place(self):
        array = np.zeros((3, 4), F)
        assert arrays.floats(array, "w").ctypes.data == array.ctypes.data
        assert arrays.writable(array, "w").ctypes.data == array.ctypes.data
        ids = np.arange(3)
        assert arrays.ids(ids).ctypes.data == ids.ctypes.data

    def test_averages_are_pulled_and_saved(self, alone, tmp_path):
        alone.create("w", np.zeros(1, F), ps.SGD(1.0, average=2))
        for _ in range(3):
            alone.push_pull({"w": np.ones(1, F)})
        assert alone.pull("w").tolist() == [-3]
        mean = alone.pull("w", averaged=True).tolist()
        assert mean == [-2.25]
        alone.save(tmp_path / "model")
        assert ps.read_parameter(tmp_path / "model" / "w").tolist() == mean

    def test_a_forked_child_is_refused(self, alone):
        child = os.fork()
        if child == 0:
            try:
                alone.barrier()
            except RuntimeError as error:
                os._exit(0 if "call `paddlecloud.ps.connect()` in the child" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class TestTable:
    def test_rows_are_created_by_training_alone(self, alone):
        alone.table("emb", 4, ps.SGD(1.0), init=ps.Uniform(-1, 1), seed=3)
        ids = np.array([[7, -1], [2**40, 7]])
        seen = alone.lookup("emb", ids, train=False)
        assert seen.shape == (2, 2, 4)
        assert alone.stat()[0]["tensors"][0]["rows"] == 0
        assert (alone.lookup("emb", ids) == seen).all()
        assert alone.stat()[0]["tensors"][0]["rows"] == 3
        assert (seen[0, 0] == seen[1, 1]).all()
        assert (np.abs(seen) <= 1).all()

    def test_gradients_of_repeated_ids_are_summed(self, alone):
        alone.table("emb", 2, ps.SGD(1.0), init=ps.Zero())
        alone.lookup("emb", [5, 6])
        alone.push_rows("emb", [5, 6, 5], np.array([[1, 1], [2, 2], [4, 4]], F))
        alone.end_step()
        assert alone.lookup("emb", [5, 6]).tolist() == [[-5, -5], [-2, -2]]

    def test_rows_are_looked_up_in_the_background(self, alone):
        alone.table("emb", 2, init=ps.Zero())
        assert alone.prefetch("emb", [1, 2, 3]).result(30).tolist() == [[0, 0]] * 3

    def test_a_model_is_saved_and_loaded(self, alone, tmp_path):
        alone.create("w", np.arange(6, dtype=F).reshape(2, 3))
        alone.table("emb", 2, init=ps.Uniform(), seed=1)
        rows = alone.lookup("emb", range(100))
        folder = alone.save_pass(7, tmp_path)
        assert sorted(path.name for path in folder.iterdir()) == ["done", "emb", "emb.ids", "w"]
        header = (folder / "w").read_bytes()[:16]
        assert header == bytes([0, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0])
        with ps.connect(stall=0) as other:
            other.create("w", np.zeros((2, 3), F))
            other.table("emb", 2, init=ps.Zero())
            other.load(folder)
            assert (other.pull("w") == np.arange(6).reshape(2, 3)).all()
            assert (other.lookup("emb", range(100), train=False) == rows).all()
        (folder / "done").unlink()
        with pytest.raises(ps.Error, match="is not a complete model"):
            alone.load(folder)


class TestTeam:
    def test_a_mean_is_over_the_trainers(self):
        session = team(2)

        def work(trainer):
            mine = session(trainer)
            mine.create("w", np.zeros(1, F), ps.SGD(1.0))
            for step in mine.steps(3):
                mine.push({"w": np.array([trainer * 2 + step], F)})
            return mine.pull("w").tolist()

        assert in_threads(2, work) == [[-6], [-6]]

    def test_asynchronous_trainers_do_not_wait(self):
        session = team(2, mode="async")
        first = session(0)
        first.create("w", np.zeros(1, F), ps.SGD(1.0))
        for _ in range(5):
            first.push_pull({"w": np.ones(1, F)})
        assert first.pull("w") == [-5]

    def test_a_replaced_trainer_is_fenced_off(self):
        session = team(1)
        old, new = session(0), None
        old.create("w", np.zeros(1, F))
        new = session(0, attempt=2)
        with pytest.raises(ps.Fenced, match="attempt 1 of trainer 0 was replaced by attempt 2"):
            old.push({"w": np.zeros(1, F)})
        assert new.step == 0
        gc.collect()

    def test_trainers_must_agree(self):
        address = _native.ps_serve(1, "hush")
        connect = lambda mean: _native.PsClient([address], 0, 1, 1, "hush", "sync", 0, mean, "", 0, 5.0, None)  # noqa: E731
        connect(True)
        with pytest.raises(ps.Error, match="trainer 0 joins with mode sync, sum"):
            connect(False)


GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "parameter-server.md"


def guides_python():
    return re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_the_guides_other_snippets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ps.connect(stall=0) as server:
        server.create("w", np.zeros(3, F))
        server.save("pass-00000")
    snippets = [text for text in guides_python()[1:] if "DistributedOptimizer" not in text]
    assert len(snippets) == 5
    for snippet in snippets:
        names = {
            "ps": ps,
            "server": ps.connect(stall=0),
            "w": np.zeros(3, F),
            "gradient": np.ones(3, F),
            "batch": range(8),
            "ids": [1, 2**40, 1],
            "gradients": np.ones((3, 16), F),
            "np": np,
            "gradient_of": lambda sample: np.ones(13, F),
        }
        exec(snippet, names)


def test_the_guides_first_program_trains(tmp_path):
    program = guides_python()[0]
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("largest error ")[1]) < 0.1, done.stdout
    assert len(ps.read_parameter(tmp_path / "output" / "pass-00000" / "w")) == 13


class TestEnvironment:
    def test_a_job_is_found_in_the_environment(self):
        job = Job.from_environment({
            "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:7164,10.0.0.2:7164",
            "PADDLE_INIT_TRAINER_ID": "3",
            "PADDLE_INIT_NUM_GRADIENT_SERVERS": "4",
            "PADDLECLOUD_ATTEMPT": "j_x.trainer-3.2",
            "PADDLE_PS_SECRET": "hush",
        })
        assert job == Job(["10.0.0.1:7164", "10.0.0.2:7164"], 3, 4, 2, "hush", "j_x")
        old = Job.from_environment({"PADDLE_INIT_PSERVERS": "10.0.0.5,10.0.0.6", "PADDLE_INIT_PORT": "7200"})
        assert old.addresses == ["10.0.0.5:7200", "10.0.0.6:7200"]

    def test_a_job_without_servers_says_what_to_do(self):
        with pytest.raises(ps.Error, match="submit it with `-pservers 1`"):
            Job.from_environment({"TRAINING_ROLE": "TRAINER"})

    def test_runs_have_folders_of_their_own(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        job = Job([], 0, 1, 1, None, "j_2")
        assert job.folders("output/checkpoints") == (f"{tmp_path}/output/checkpoints/j_2", "")
        named = job.resuming("j_1")
        assert named.folders("output/checkpoints")[1] == f"{tmp_path}/output/checkpoints/j_1"
        submitted = Job([], 0, 1, 1, None, "j_2", "j_1", "/runs/j_1/output")
        assert submitted.resuming("j_1") == submitted
        assert submitted.folders("output/checkpoints")[1] == "/runs/j_1/output/checkpoints/j_1"
        assert submitted.folders("output")[1] == "/runs/j_1/output/j_1"
        assert submitted.folders("/pfs/checkpoints") == ("/pfs/checkpoints/j_2", "/pfs/checkpoints/j_1")

    def test_a_run_to_resume_is_one_name(self):
        job = Job([], 0, 1, 1, None, "j_2", "j_1", "/runs/j_1/output")
        with pytest.raises(ValueError, match="`resume` is the name of a run, a folder in `checkpoints`, not 'a/b'"):
            job.resuming("a/b")
        with pytest.raises(ValueError, match="resumes 'j_0', but the job was submitted with `-resume` of 'j_1'"):
            job.resuming("j_0")

    def test_attempts_are_numbered(self):
        assert [attempt_number("j_x.trainer-0.12"), attempt_number("")] == [12, 1]

    def test_a_stuck_trainer_logs_its_stack(self):
        program = (
            "import threading\nfrom paddlecloud import ps\nsession = ps.connect(stall=0.2)\n"
            "def stuck_here():\n    threading.Event().wait(5)\nstuck_here()\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0
        assert "in stuck_here" in done.stderr
