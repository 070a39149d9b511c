"""PaddlePaddle with parameter servers beyond single settings: several trainers, restarts, names, states, embeddings.

`test_paddle_differential` compares the settings of optimizers one by one.
"""

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
if not hasattr(paddle, "nn"):  # ours, without the framework
    pytest.skip("PaddlePaddle is not installed", allow_module_level=True)

from paddle.nn import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue  # noqa: E402
from exported import export  # noqa: E402
from paddle_methods import copied, embedded, freeze, loaded, of_rows, restored  # noqa: E402
from paddle_programs import STEPS, averaged, backward, distributed, draw, plain, together, weights  # noqa: E402
from paddle_table import BASE, KINDS  # noqa: E402
from test_ps_batches import Killed, Servers  # noqa: E402
from test_ps_team import Team  # noqa: E402

from paddlecloud import ps  # noqa: E402
from paddlecloud.ps import arrays  # noqa: E402
from paddlecloud.ps.paddle import DistributedOptimizer, Embedding, EmbeddingBag, attach, rules  # noqa: E402

F = np.float32
CLIPS = [ClipGradByValue(0.05), ClipGradByNorm(0.1), ClipGradByGlobalNorm(0.1)]


@pytest.fixture
def session():
    with ps.connect(stall=0) as session:
        yield session


def linear(**options):
    return paddle.nn.Linear(2, 1, **options)


def sgd(model, rate=0.1):
    return paddle.optimizer.SGD(rate, parameters=model.parameters())


class TestClipping:
    @pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: type(clip).__name__)
    def test_several_trainers_clip_each_by_itself(self, clip):
        program = BASE["Momentum"].with_arguments(grad_clip=clip).but(options={"clip": "each"})
        without = BASE["Momentum"]
        expected = averaged(without, each=lambda pairs: clip([(p, g.clone()) for p, g in pairs]))
        assert np.abs(together(program, Team(2, 2)) - expected).max() <= 1e-6
        assert np.abs(expected - averaged(without)).max() >= 1e-4

    @pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: type(clip).__name__)
    @pytest.mark.parametrize("in_group", [False, True])
    def test_clipping_of_the_mean_is_refused(self, clip, in_group):
        model = linear()
        groups = [{"params": model.parameters(), "grad_clip": clip}]
        optimizer = paddle.optimizer.SGD(
            0.1, parameters=groups if in_group else model.parameters(), grad_clip=None if in_group else clip
        )
        sentence = rf"{type(clip).__name__} needs the mean of the gradients of all 2 trainers.*clip='each'"
        with pytest.raises(ValueError, match=sentence):
            DistributedOptimizer(optimizer, Team(2, 1).session())

    def test_in_asynchronous_training_each_push_is_clipped(self):
        model = linear()
        optimizer = paddle.optimizer.SGD(1.0, parameters=model.parameters(), grad_clip=ClipGradByNorm(0.1))
        optimizer = DistributedOptimizer(optimizer, Team(2, 1, mode="async").session())
        before = model.weight.numpy()
        (100 * model(paddle.ones([1, 2]))).sum().backward()
        optimizer.step()
        assert np.linalg.norm(model.weight.numpy() - before) == pytest.approx(0.1, abs=1e-6)

    def test_another_word_is_refused(self, session):
        with pytest.raises(ValueError, match="`clip` must be None or 'each', not 'mean'"):
            DistributedOptimizer(sgd(linear()), session, clip="mean")


class TestTrainers:
    @pytest.mark.parametrize("loads", [[0], [1]], ids=str)
    def test_values_that_only_one_trainer_loads_are_refused(self, loads):
        """The first gradient of trainer 1 would be that of another model."""
        wrapped = threading.Barrier(2)

        def train(session):
            model = models[session.trainer]
            optimizer = DistributedOptimizer(sgd(model), session)
            wrapped.wait(30)
            if session.trainer in loads:
                model.weight.set_value(np.full((2, 1), 7, F))
            try:
                optimizer.step()
            except ValueError as error:
                return str(error)
            finally:
                session.close()

        models = [linear(), linear()]
        first, second = Team(2, 2).each(train)
        assert first is None
        assert second.startswith("`parameter0` has other values in trainer 1 than in trainer 0: set it in all trainers")

    def test_trainers_begin_with_the_weights_of_the_first(self):
        def train(session):
            DistributedOptimizer(sgd(models[session.trainer]), session)
            return models[session.trainer].weight.numpy()

        models = [linear(), linear()]
        first, second = Team(2, 2).each(train)
        assert first.tobytes() == second.tobytes()

    @pytest.mark.parametrize("steps", [(0, 8), (8, 20)], ids=["at first", "later"])
    def test_a_frozen_layer(self, steps):
        program = BASE["Adam"].but(backward=freeze(0, *steps))
        assert np.abs(together(program, Team(2, 2)) - averaged(program)).max() <= 1e-6

    def test_a_model_loaded_before_the_first_step(self):
        program = BASE["Adam"].but(prepare=loaded)
        assert np.abs(together(program, Team(2, 2)) - averaged(program)).max() <= 1e-6

    def test_a_state_loaded_in_training(self):
        program = BASE["Adam"].but(update=restored("set_state_dict"))
        assert np.abs(together(program, Team(2, 2)) - averaged(program)).max() <= 1e-6

    def test_gradients_of_one_trainer_only(self):
        """The other's count as 0."""

        def some(run):
            backward(run)
            if run.trainer == 1:
                for parameter in run.model[0].parameters():
                    parameter.clear_gradient(False)

        def with_zeros(run):
            backward(run)
            if run.trainer == 1:
                for parameter in run.model[0].parameters():
                    parameter.clear_gradient(True)

        expected = averaged(BASE["Momentum"].but(backward=with_zeros))
        assert np.abs(together(BASE["Momentum"].but(backward=some), Team(2, 2)) - expected).max() <= 1e-6

    def test_a_layer_that_differs_when_it_is_unfrozen_is_named(self, capfd):
        def train(session):
            model = models[session.trainer]
            model[0].weight.stop_gradient = True
            optimizer = DistributedOptimizer(sgd(model), session)
            for step in range(3):
                model[0].weight.stop_gradient = step < 2
                optimizer.step()
            return model[0].weight.numpy()

        models = [paddle.nn.Sequential(linear()), paddle.nn.Sequential(linear())]
        first, second = Team(2, 1).each(train)
        assert first.tobytes() == second.tobytes()
        assert "paddlecloud.ps: `parameter0` has the values of trainer 0 after this step" in capfd.readouterr().err


def trained(run, steps=STEPS // 2):
    for _ in range(steps):
        draw(run)
        backward(run)
        run.optimizer.step()
        run.optimizer.clear_grad()
    return weights(run)


def renamed(state, old, new):
    """Paddle numbers the names of parameters in the whole process."""
    found = dict(state)
    for before, after in zip(old.model.parameters(), new.model.parameters()):
        for key in state:
            if key.startswith(f"{before.name}_"):
                found[after.name + key.removeprefix(before.name)] = found.pop(key)
    return found


class TestStates:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("ours", [0, 1], ids=["ours first", "Paddle first"])
    def test_a_plain_program_continues_the_state_and_the_other_way_round(self, kind, ours):
        program = BASE[kind]
        if kind == "RMSProp":
            program = program.with_arguments(momentum=0.5, centered=True)
        runs = [program.make_run(), program.make_run()]
        runs[ours].optimizer = DistributedOptimizer(runs[ours].optimizer, ps.connect(stall=0))
        trained(runs[0])
        runs[1].source = runs[0].source
        runs[1].model.set_state_dict(copied(runs[0].model.state_dict()))
        runs[1].optimizer.set_state_dict(renamed(copied(runs[0].optimizer.state_dict()), *runs))
        assert np.abs(trained(runs[1]) - trained(program.make_run(), STEPS)).max() <= 1e-6

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_optimizer_that_has_trained_alone_keeps_its_state(self, kind):
        run = BASE[kind].make_run()
        trained(run)
        run.optimizer = DistributedOptimizer(run.optimizer, ps.connect(stall=0))
        assert np.abs(trained(run) - trained(BASE[kind].make_run(), STEPS)).max() <= 1e-6

    @pytest.mark.parametrize("is_model_first", [True, False])
    def test_what_was_loaded_before_the_wrap_counts(self, is_model_first):
        """Also if the model is loaded after it, which replaces the values on the servers."""
        runs = [BASE["Adam"].make_run(), BASE["Adam"].make_run()]
        trained(runs[0])
        runs[1].source = runs[0].source
        runs[1].optimizer.set_state_dict(renamed(copied(runs[0].optimizer.state_dict()), *runs))
        for is_model in (is_model_first, not is_model_first):
            if is_model:
                runs[1].model.set_state_dict(copied(runs[0].model.state_dict()))
            else:
                runs[1].optimizer = DistributedOptimizer(runs[1].optimizer, ps.connect(stall=0))
        assert np.abs(trained(runs[1]) - trained(BASE["Adam"].make_run(), STEPS)).max() <= 1e-6

    def test_a_state_of_another_model_is_refused(self, session):
        model = linear()
        optimizer = DistributedOptimizer(paddle.optimizer.Adam(parameters=model.parameters()), session)
        with pytest.raises(ValueError, match="`other_moment1_0`, but the optimizer trains no such parameter"):
            optimizer.set_state_dict({"other_moment1_0": paddle.zeros([2])})
        name = f"{model.weight.name}_moment1_0"
        with pytest.raises(ValueError, match=f"the optimizer state has no square of `{model.weight.name}`"):
            optimizer.set_state_dict({name: paddle.zeros([2, 1])})

    def test_the_state_before_the_first_step_is_empty(self, session):
        optimizer = DistributedOptimizer(paddle.optimizer.Adam(parameters=linear().parameters()), session)
        assert optimizer.state_dict() == {}

    def test_a_scheduler_is_in_the_state(self, session):
        rate = paddle.optimizer.lr.StepDecay(0.5, 2)
        optimizer = DistributedOptimizer(sgd(linear(), rate), session)
        rate.step()
        assert optimizer.state_dict()["LR_Scheduler"]["last_epoch"] == 1


def test_a_rate_of_its_own_for_each_parameter(session):
    """Paddle has `lr_ratio` on GPUs only, so there is no program to compare with."""
    model = linear()
    optimizer = paddle.optimizer.AdamW(0.1, parameters=model.parameters())
    optimizer._lr_ratio = lambda parameter: 0.5 if parameter is model.weight else 2.0
    assert [rules.initial(optimizer, parameter, None, 0.1).lr for parameter in model.parameters()] == [0.05, 0.2]


class TestNames:
    def test_tensors_have_the_names_of_the_model(self, session, tmp_path):
        model = paddle.nn.Sequential(linear(), linear(bias_attr=False))
        DistributedOptimizer(sgd(model), session, model=model)
        assert list(session._shapes.items()) == [("0.weight", (2, 1)), ("0.bias", (1,)), ("1.weight", (2, 1))]
        session.save(tmp_path)
        assert ps.read_parameter(tmp_path / "0.bias").shape[-1] == 1

    def test_an_exported_model_is_loaded_by_the_plain_program(self, session, tmp_path):
        models = [paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.BatchNorm1D(3)) for _ in range(2)]
        optimizer = DistributedOptimizer(sgd(models[0]), session, model=models[0])
        models[0](paddle.rand([4, 2])).square().sum().backward()
        optimizer.step()
        missing, unexpected = models[1].set_state_dict(export(session, tmp_path))
        assert (missing, unexpected) == (["1._mean", "1._variance"], [])
        for trained, loaded in zip(*(model.parameters() for model in models)):
            assert trained.stop_gradient or (trained.numpy() == loaded.numpy()).all()

    def test_a_parameter_of_another_model_is_refused(self, session):
        model = linear()
        with pytest.raises(ValueError, match=f"`{model.weight.name}` of the optimizer is not one of `model`"):
            DistributedOptimizer(sgd(model), session, model=linear())

    def test_a_name_that_the_session_has_is_refused(self, session):
        models = [linear(), linear()]
        DistributedOptimizer(sgd(models[0]), session, model=models[0])
        with pytest.raises(ValueError, match="this session has a tensor `weight` already; give one `model=`"):
            DistributedOptimizer(sgd(models[1]), session, model=models[1])

    def test_a_session_may_have_several_optimizers(self, session):
        models = [linear(), linear()]
        optimizers = [DistributedOptimizer(sgd(model), session) for model in models]
        before = models[1].weight.numpy()
        (models[0](paddle.ones([1, 2])) + models[1](paddle.ones([1, 2]))).sum().backward()
        optimizers[1].step()
        assert np.abs(before - models[1].weight.numpy() - 0.1).max() <= 1e-6
        assert list(session._shapes) == ["parameter0", "parameter1", "optimizer1.parameter0", "optimizer1.parameter1"]


class TestRefusals:
    def test_a_distributed_optimizer(self, session):
        optimizer = DistributedOptimizer(sgd(linear()), session)
        with pytest.raises(ValueError, match="this optimizer is distributed already"):
            DistributedOptimizer(optimizer, session)

    def test_a_gradient_of_another_parameter(self, session):
        optimizer, other = DistributedOptimizer(sgd(linear()), session), linear()
        pairs = [(other.weight, paddle.ones([2, 1]))]
        with pytest.raises(ValueError, match=f"`{other.weight.name}` is not one of the optimizer's parameters"):
            optimizer.apply_gradients(pairs)

    def test_static_graph_mode(self, session):
        optimizer = DistributedOptimizer(sgd(linear()), session)
        paddle.enable_static()
        try:
            with pytest.raises(ValueError, match="do not support static graph mode; call `step` outside `to_static`"):
                optimizer.step()
        finally:
            paddle.disable_static()

    def test_look_ahead_around_a_distributed_optimizer(self, session):
        model = linear()
        optimizer = paddle.incubate.LookAhead(DistributedOptimizer(sgd(model), session), k=1)
        with pytest.raises(ValueError, match="`parameter0` was changed in place after the first step"):
            for _ in range(3):
                model(paddle.ones([1, 2])).sum().backward()
                optimizer.step()


class Normalized:
    """A program with everything that a trainer keeps, which may be killed."""

    POINTS = ("before", "ready", "after")

    def __init__(self, kill=None):
        self.kill = kill

    def run(self, servers):
        while True:
            try:
                return self.train(servers.session())
            except Killed:
                continue

    def at(self, point, number):
        if self.kill == (point, number):
            self.kill = None
            raise Killed(point)

    def train(self, session):
        paddle.seed(5)
        layers = [paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Dropout(0.3), paddle.nn.Linear(4, 1)]
        model = paddle.nn.Sequential(*layers)
        rate = paddle.optimizer.lr.ExponentialDecay(0.05, 0.8)
        groups = [{"params": layers[0].parameters(), "beta1": 0.8}, {"params": layers[1].parameters() + layers[3].parameters()}]
        optimizer = DistributedOptimizer(paddle.optimizer.Adam(rate, parameters=groups), session, model=model)
        source = np.random.default_rng(1).normal(size=(4, 8, 3)).astype(F)
        loop = session.batches(list(source), 2, keep=[model, rate])
        for batch in loop:
            number = loop.epoch * len(source) + loop.index
            self.at("before", number)
            model(paddle.to_tensor(batch)).square().mean().backward()
            self.at("ready", number)
            optimizer.step()
            optimizer.clear_grad()
            rate.step()
            self.at("after", number)
        return b"".join(value.numpy().tobytes() for value in model.state_dict().values()), rate.last_lr


@pytest.mark.parametrize("number", [0, 3, 7])
@pytest.mark.parametrize("point", Normalized.POINTS)
def test_a_killed_program_ends_with_the_bits_of_an_undisturbed_one(point, number):
    program = Normalized((point, number))
    assert program.run(Servers()) == Normalized().run(Servers())
    assert program.kill is None


def test_a_restarted_trainer_with_its_own_loop_is_named(capfd):
    servers = Servers(1)
    for attempt in range(2):
        model = linear()
        optimizer = DistributedOptimizer(sgd(model), servers.session())
        if attempt == 1:
            model.weight.set_value(np.full((2, 1), 7, F))
        for _ in range(2):
            model(paddle.ones([1, 2])).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
    said = capfd.readouterr().err
    assert "trainer 0 resumes at step 2" in said
    assert "use `batches`" in said
    assert "`parameter0` was set by the program; it has the values of step 2 again, and this batch does not count" in said
    assert np.abs(model.weight.numpy()).max() < 3
    assert optimizer.session.step == 3, "the batch that does not count ends no step"


def test_tensors_are_used_in_place():
    tensor = paddle.zeros([3, 4])
    assert arrays.floats(tensor, "w").ctypes.data == tensor.data_ptr()
    assert arrays.writable(tensor, "w").ctypes.data == tensor.data_ptr()


class TestEmbeddings:
    def test_an_embedding_trains_and_evaluation_creates_no_rows(self, session):
        embedding = Embedding(session, "emb", 4, ps.SGD(0.5), init=ps.Uniform(-1, 1))
        ids = paddle.to_tensor([[1, 2], [2, 3]])
        before = session.lookup("emb", [1, 2, 3]).copy()
        embedding(ids).sum().backward()
        session.end_step()
        after = session.lookup("emb", [1, 2, 3])
        assert np.allclose(before - after, np.array([[0.5], [1.0], [0.5]]))
        embedding.eval()
        rows = embedding(paddle.to_tensor([7, 1]))
        assert np.allclose(rows.numpy()[1], after[0])
        assert session.stat()[0]["tensors"][0]["rows"] == 3
        with pytest.raises(Exception, match="were looked up in evaluation; call `train\\(\\)`"):
            rows.sum().backward()

    def test_without_gradients_no_row_is_created(self, session):
        embedding = Embedding(session, "emb", 4)
        with paddle.no_grad():
            embedding(paddle.to_tensor([1, 2]))
        assert session.stat()[0]["tensors"][0]["rows"] == 0

    def test_a_bag_is_the_sum_or_the_mean_of_its_rows(self, session):
        bags = [EmbeddingBag(session, mode, 3, mode=mode, init=ps.Uniform(-1, 1)) for mode in ("sum", "mean")]
        ids = paddle.to_tensor([[1, 2], [3, 3]])
        assert np.allclose(bags[0](ids).numpy(), session.lookup("sum", ids.numpy()).sum(axis=1))
        assert np.allclose(bags[1](ids).numpy(), session.lookup("mean", ids.numpy()).mean(axis=1))

    @pytest.mark.parametrize("ids", [[[0, 1], [2, 0]], [[0, 0]]], ids=["some", "all"])
    def test_padding_is_that_of_paddle(self, session, ids):
        plain = paddle.nn.Embedding(4, 3, padding_idx=0)
        ours = Embedding(session, "emb", 3, ps.SGD(0.5), padding_idx=0, init=ps.Zero())
        session.lookup("emb", [1, 2])
        session.push_rows("emb", [1, 2], -2 * plain.weight.numpy()[[1, 2]])
        session.end_step()
        ids = paddle.to_tensor(ids)
        assert np.allclose(ours(ids).numpy(), plain(ids).numpy())
        optimizer = paddle.optimizer.SGD(0.5, parameters=plain.parameters())
        for layer in (ours, plain):
            (layer(ids) ** 2).sum().backward()
        optimizer.step()
        session.end_step()
        assert np.allclose(ours(ids).numpy(), plain(ids).numpy())
        assert np.allclose(session.lookup("emb", [1, 2], train=False), plain.weight.numpy()[[1, 2]])

    def test_a_copy_has_the_same_rows_and_a_pickle_needs_a_session(self, session):
        model = paddle.nn.Sequential(EmbeddingBag(session, "emb", 4, ps.SGD(1.0), mode="mean", padding_idx=0))
        ids = paddle.to_tensor([[1, 2]])
        expected = model(ids).numpy()
        assert np.allclose(copy.deepcopy(model)(ids).numpy(), expected)
        again = pickle.loads(pickle.dumps(model[0]))
        with pytest.raises(ValueError, match=r"`emb` was loaded from a file; call `attach\(model, session\)` first"):
            again(ids)
        assert np.allclose(attach(again, session)(ids).numpy(), expected)

    @pytest.mark.parametrize("ids", [[-1], [0.5]], ids=str)
    def test_other_ids_are_refused(self, session, ids):
        embedding = Embedding(session, "emb", 4)
        with pytest.raises(ValueError, match="ids of `emb` must be integers from 0; for padding use `padding_idx`"):
            embedding(paddle.to_tensor(ids))
        with pytest.raises(ValueError, match="`padding_idx` must not be negative"):
            Embedding(session, "emb", 4, padding_idx=-1)


@pytest.mark.parametrize("kind", ["Adagrad", "Momentum", "RMSProp"])
def test_sparse_gradients_of_several_trainers(kind):
    program = BASE[kind].but(model=embedded(True), losses=of_rows)
    dense = BASE[kind].but(model=embedded(False), losses=of_rows)
    assert np.abs(together(program, Team(2, 2)) - averaged(dense)).max() <= 1e-6
    assert np.abs(distributed(program) - plain(program)).max() <= 1e-6


PLAIN_SPARSE = """
import sys
import paddle
model = paddle.nn.Embedding(7, 4, sparse=True)
optimizer = getattr(paddle.optimizer, sys.argv[1])(0.1, parameters=model.parameters())
model(paddle.to_tensor([1, 2])).sum().backward()
optimizer.step()
print("updated")
"""


@pytest.mark.parametrize("kind", ["AdamW", "Adadelta", "Adamax"])
def test_where_sparse_gradients_are_refused_paddle_fails_too(kind):
    """Its dispatcher takes the rows for a tensor: it raises, or the process ends."""
    done = subprocess.run([sys.executable, "-c", PLAIN_SPARSE, kind], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "updated" not in done.stdout


def test_parameters_are_fetched_again_when_training_goes_back():
    model, session = linear(), Servers().session()
    optimizer = DistributedOptimizer(sgd(model), session)
    model(paddle.ones([1, 2])).sum().backward()
    optimizer.step()
    before = model.weight.numpy().copy()
    with paddle.no_grad():
        model.weight.set_value(model.weight * 2)
    session.go_back()
    assert (model.weight.numpy() == before).all()
    optimizer.step()
