"""`DistributedOptimizer` for PyTorch: state, names, and what is refused by name. The arithmetic is in test_torch_differential.py."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from exported import export  # noqa: E402
from test_ps_batches import Killed  # noqa: E402
from test_ps_team import Team  # noqa: E402
from torch_behaviour import trained_state  # noqa: E402
from torch_programs import batch, network, squared_error  # noqa: E402
from torch_rows import USUAL, make, using  # noqa: E402

from paddlecloud import ps  # noqa: E402
from paddlecloud.ps import arrays  # noqa: E402
from paddlecloud.ps.torch import DistributedOptimizer  # noqa: E402

OPTIONS = {"SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.5, "centered": True}, "Adagrad": {"initial_accumulator_value": 0.1}}


def sgd(parameters, **options):
    return torch.optim.SGD(parameters, **{"lr": 0.05, "momentum": 0.9, **options})


def distributed(optimizer, **options):
    return DistributedOptimizer(optimizer, ps.connect(stall=0), **options)


def started(steps=1, model=None, **options):
    """A model and its distributed optimizer after some steps."""
    model = model or network()
    optimizer = distributed(sgd(model.parameters()), **options)
    for number in range(steps):
        train(model, optimizer, number)
    return model, optimizer


def train(model, optimizer, number=0):
    optimizer.zero_grad()
    squared_error(model, batch(0, number)).backward()
    optimizer.step()


def test_torch_tensors_are_used_in_place():
    tensor = torch.zeros(3, 4, requires_grad=True)
    assert arrays.floats(tensor, "w").ctypes.data == tensor.data_ptr()
    assert arrays.writable(tensor, "w").ctypes.data == tensor.data_ptr()


def test_torch_a_wrapped_optimizer_is_still_one_of_its_class():
    model, optimizer = started()
    assert isinstance(optimizer, torch.optim.SGD)
    assert repr(optimizer).startswith("SGD (")


class TestState:
    @pytest.mark.parametrize("name", USUAL)
    def test_torch_the_state_dict_is_that_of_the_plain_optimizer(self, name):
        results = []
        for wrap in (lambda optimizer: optimizer, distributed):
            model = network()
            optimizer = wrap(make(name, list(model.parameters()), **OPTIONS.get(name, {})))
            for number in range(5):
                train(model, optimizer, number)
            results.append(optimizer.state_dict())
        plain, ours = results
        assert plain["param_groups"] == ours["param_groups"]
        assert plain["state"].keys() == ours["state"].keys()
        for key, state in plain["state"].items():
            assert state.keys() == ours["state"][key].keys()
            for field, value in state.items():
                assert np.allclose(value, ours["state"][key][field], rtol=1e-5, atol=1e-7), (key, field)

    def test_torch_there_is_no_state_before_the_first_step(self):
        _, optimizer = started(0)
        assert optimizer.state_dict()["state"] == {}

    def test_torch_an_empty_state_that_is_loaded_forgets(self):
        model, optimizer = started(3)
        fresh = sgd(network().parameters()).state_dict()
        optimizer.load_state_dict(fresh)
        assert optimizer.state_dict()["state"] == {}

    def test_torch_a_state_of_another_kind_is_refused(self):
        _, optimizer = started(0)
        with pytest.raises(ValueError, match="the loaded optimizer state of `group0.0` has no `momentum_buffer`"):
            optimizer.load_state_dict(trained_state(using("RMSprop")))

    def test_torch_the_state_is_not_in_the_object(self):
        _, optimizer = started()
        for act in (lambda: optimizer.state, lambda: setattr(optimizer, "state", {})):
            with pytest.raises(ValueError, match="the optimizer's state is on the parameter servers; use"):
                act()

    def test_torch_the_state_of_a_scheduler_is_small(self):
        """PyTorch 1.13 keeps a method of OneCycleLR in its state, and so its optimizer."""
        optimizer = distributed(sgd([torch.nn.Parameter(torch.ones(100_000))]))
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10)
        saved = pickle.dumps(scheduler.state_dict())
        assert len(saved) < 10_000
        scheduler.load_state_dict(pickle.loads(saved))
        scheduler.step()


class TestChanges:
    """The servers own the values: a change of the local copy after the first step is refused."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda weight: weight.clamp_(-0.01, 0.01),
            lambda weight: weight.data.clamp_(-0.01, 0.01),
            lambda weight: weight.data[0, 0].add_(1e-6),
            lambda weight: setattr(weight, "data", weight.data * 2),
            lambda weight: torch.nn.utils.vector_to_parameters(torch.ones(weight.numel()), [weight]),
            lambda weight: weight.copy_(torch.ones_like(weight)),
        ],
    )
    @pytest.mark.parametrize("size", [(6, 5), (130, 131)])
    def test_torch_weights_changed_in_place_are_refused(self, change, size):
        model = torch.nn.Linear(size[1], size[0])
        optimizer = distributed(sgd(model.parameters()))
        for _ in range(2):
            model(torch.ones(1, size[1])).sum().backward()
            optimizer.step()
        with torch.no_grad():
            change(model.weight)
        with pytest.raises(ValueError, match=r"`group0.0` was changed in place after the first step"):
            optimizer.step()

    def test_torch_a_step_counts_as_a_change_of_its_parameters(self):
        """Autograd notices that a value it needs is gone, as after a plain step."""
        model, optimizer = started(0)
        loss = squared_error(model, batch(0, 0))
        loss.backward(retain_graph=True)
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    @pytest.mark.parametrize("loads", [[0], [1]], ids=str)
    def test_torch_values_that_only_one_trainer_loads_are_refused(self, loads):
        """The first gradient of trainer 1 would be that of another model."""
        wrapped = threading.Barrier(2)

        def work(session):
            model = network()
            optimizer = DistributedOptimizer(sgd(model.parameters()), session)
            wrapped.wait(30)
            if session.trainer in loads:
                with torch.no_grad():
                    model[0].bias.fill_(3)
            try:
                train(model, optimizer)
            except ValueError as error:
                return str(error)
            finally:
                session.close()

        first, second = Team(2, 2).each(work)
        assert first is None
        assert second.startswith("`group0.1` has other values in trainer 1 than in trainer 0: set it in all trainers")

    @pytest.mark.parametrize("trainer", [0, 1])
    def test_torch_in_asynchronous_training_values_are_set_before(self, trainer):
        team = Team(2, mode="async")

        def work(session):
            model = network()
            optimizer = DistributedOptimizer(sgd(model.parameters()), session)
            if session.trainer == trainer:
                model[0].bias.data.fill_(3)
                with pytest.raises(ValueError, match="in asynchronous training set parameters before"):
                    train(model, optimizer)

        team.each(work)

    def test_torch_a_trainer_killed_in_its_first_step_passes_it_again(self):
        """The other one has compared its values and waits for the end of the step."""
        team = Team(2)

        def killed(*_, **__):
            raise Killed

        def train_one(session, end_step=None):
            session.end_step = end_step or session.end_step
            model = network()
            optimizer = DistributedOptimizer(sgd(model.parameters()), session)
            train(model, optimizer)
            return model[0].bias.detach().numpy().tobytes()

        with ThreadPoolExecutor(2) as pool:
            other = pool.submit(train_one, team.session(1))
            with pytest.raises(Killed):
                train_one(team.session(0), killed)
            assert train_one(team.session(0, attempt=2)) == other.result(60)


class TestNames:
    def test_torch_an_exported_model_has_the_names_and_shapes_of_the_model(self, tmp_path):
        model, optimizer = started(model=network(), steps=0)
        assert [tensor["name"] for tensor in optimizer.session.stat()[0]["tensors"]] == [f"group0.{at}" for at in range(4)]
        model = network()
        optimizer = distributed(sgd(model.parameters()), model=model)
        names = sorted(tensor["name"] for tensor in optimizer.session.stat()[0]["tensors"])
        assert names == sorted(model.state_dict())

    def test_torch_an_exported_model_is_loaded_by_the_plain_program(self, tmp_path):
        def normalized():
            torch.manual_seed(4)
            return torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1, bias=False))

        model = normalized()
        optimizer = distributed(sgd(model.parameters()), model=model)
        train(model, optimizer)
        values = {name: torch.from_numpy(value.copy()) for name, value in export(optimizer.session, tmp_path).items()}
        again = normalized()
        lacks = again.load_state_dict(values, strict=False)
        assert lacks.unexpected_keys == []
        assert {"1.running_mean", "1.running_var"} <= set(lacks.missing_keys) <= {name for name, _ in again.named_buffers()}
        for trained, loaded in zip(model.parameters(), again.parameters()):
            assert torch.equal(trained, loaded)

    def test_torch_two_optimizers_share_a_session_by_the_names_of_one_model(self):
        session, both = ps.connect(stall=0), torch.nn.ModuleDict({"one": network(), "two": network()})
        optimizers = [DistributedOptimizer(sgd(both[name].parameters()), session, model=both) for name in both]
        for optimizer, name in zip(optimizers, both):
            train(both[name], optimizer)


class TestRefused:
    """What `torch_refused` has no row for."""

    def test_torch_an_optimizer_that_is_refused_stays_as_it_was(self):
        model = network().double()
        optimizer = sgd(model.parameters())
        with pytest.raises(ValueError, match="float64"):
            distributed(optimizer)
        assert type(optimizer) is torch.optim.SGD
        assert optimizer.state == {}

    def test_torch_a_group_that_cannot_be_added(self):
        model, optimizer = started()
        with pytest.raises(ValueError, match="float64"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2, dtype=torch.float64))]})
        train(model, optimizer)

    def test_torch_a_gradient_scaler_that_is_off_works(self):
        _, optimizer = started(0)
        torch.cuda.amp.GradScaler(enabled=False).step(optimizer)


class TestRestarted:
    """A trainer that takes part again; `restarted` is what its session says then."""

    @pytest.fixture
    def optimizer(self):
        model = network()
        session = ps.connect(stall=0)
        session.restarted = True
        return model, DistributedOptimizer(sgd(model.parameters()), session)

    def test_torch_values_that_its_program_loads_count_for_nothing(self, optimizer, capfd):
        model, optimizer = optimizer
        before = model[0].bias.detach().clone()
        with torch.no_grad():
            model[0].bias.fill_(7)
        train(model, optimizer)
        assert torch.equal(model[0].bias, before)
        said = capfd.readouterr().err
        assert "trainer 0 resumes at step 0, but its program set `group0.1`: this batch is not counted" in said
        train(model, optimizer)
        assert not torch.equal(model[0].bias, before)


    def test_torch_a_state_that_its_program_loads_counts_for_nothing(self, optimizer, capfd):
        model, optimizer = optimizer
        optimizer.load_state_dict(trained_state(using("SGD", momentum=0.9)))
        train(model, optimizer)
        said = capfd.readouterr().err
        assert "trainer 0 resumes at step 0, but its program set `group0.0`: what was loaded is not used" in said
        assert optimizer.session.step == 1


def test_torch_trainers_unfreeze_together(capfd):
    started = threading.Barrier(2)

    def work(session):
        model = network()
        model[0].weight.requires_grad = False
        optimizer = DistributedOptimizer(sgd(model.parameters()), session)
        started.wait(30)
        for number in range(4):
            if number == 2 and session.trainer == 1:
                model[0].weight.data.fill_(9)
            model[0].weight.requires_grad = number > 1
            train(model, optimizer, number)
        session.close()
        return model[0].weight.detach().numpy().copy()

    first, second = Team(2, 2).each(work)
    assert first.tobytes() == second.tobytes()
    assert "`group0.0` had other values in this trainer than in trainer 0, whose values count" in capfd.readouterr().err
