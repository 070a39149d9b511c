"""`session.batches` with PaddlePaddle's loaders, layers and schedulers: a killed trainer ends with the bits of an undisturbed one."""

import importlib.metadata
import random

import numpy as np
import pytest

if not any(found.name.lower() == "paddlepaddle" for found in importlib.metadata.distributions()):
    pytest.skip("PaddlePaddle is not installed here", allow_module_level=True)

import paddle
from test_ps_batches import Killed, Servers

from paddlecloud import ps
from paddlecloud.ps.paddle import DistributedOptimizer, Embedding

ROWS, BATCH, EPOCHS = 40, 8, 3


class Samples(paddle.io.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return np.int64(row), np.full(3, row / ROWS, np.float32)


class Program:
    """A trainer's program: run again from the top after every kill."""

    def __init__(self, kill=None):
        self.kill = kill

    def at(self, point, batch):
        if self.kill == (point, batch):
            self.kill = None
            raise Killed(point)

    def run(self):
        servers = Servers()
        while True:
            try:
                return self.train(servers.session())
            except Killed:
                continue

    def train(self, session):
        paddle.seed(1)
        random.seed(2)
        np.random.seed(3)
        embedding = Embedding(session, "emb", 3, ps.Adagrad(0.1), init=ps.Uniform(-1, 1), seed=4)
        layers = [paddle.nn.Linear(6, 8), paddle.nn.BatchNorm1D(8), paddle.nn.Dropout(0.3), paddle.nn.Linear(8, 1)]
        model = paddle.nn.Sequential(*layers)
        schedule = paddle.optimizer.lr.StepDecay(0.02, 3, 0.7)
        optimizer = paddle.optimizer.Adam(schedule, parameters=model.parameters())
        optimizer = DistributedOptimizer(optimizer, session)
        loader = paddle.io.DataLoader(Samples(), batch_size=BATCH, shuffle=True)
        batches = session.batches(loader, EPOCHS, keep=[model, schedule])
        for rows, x in batches:
            number = batches.epoch * (ROWS // BATCH) + batches.index
            self.at("before", number)
            out = model(paddle.concat([embedding(rows), x], axis=1))
            loss = ((out - rows.unsqueeze(1).astype("float32") / ROWS) ** 2).mean()
            loss.backward()
            self.at("pushed", number)
            optimizer.step()
            self.at("ended", number)
            optimizer.clear_grad()
            schedule.step()
            self.at("after", number)
        rows = session.lookup("emb", np.arange(ROWS), train=False)
        states = [value.numpy().tobytes() for value in model.state_dict().values()]
        return rows.tobytes(), states, optimizer.get_lr(), np.random.random(), paddle.rand([3]).numpy().tobytes()


@pytest.fixture(scope="module")
def undisturbed():
    return Program().run()


@pytest.mark.parametrize("batch", [0, 1, 4, 5, 8, 14])
@pytest.mark.parametrize("point", ["before", "pushed", "ended", "after"])
def test_a_killed_trainer_ends_with_the_bits_of_an_undisturbed_one(undisturbed, point, batch):
    program = Program((point, batch))
    assert program.run() == undisturbed
    assert program.kill is None


def with_loaded_state(session, kill):
    """A program that begins with the state of an optimizer, as it was saved."""
    paddle.seed(1)
    model = paddle.nn.Linear(3, 1)
    optimizer = paddle.optimizer.Momentum(0.05, parameters=model.parameters())
    velocities = {f"{parameter.name}_velocity_0": paddle.full_like(parameter, 0.5) for parameter in model.parameters()}
    optimizer = DistributedOptimizer(optimizer, session)
    optimizer.set_state_dict(velocities)
    for x in session.batches([np.full([2, 3], number, np.float32) for number in range(4)]):
        model(paddle.to_tensor(x)).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad()
        if session.step == kill:
            raise Killed
    return [parameter.numpy().tobytes() for parameter in model.parameters()]


def test_a_restarted_program_does_not_load_its_first_state_again():
    servers = Servers()
    with pytest.raises(Killed):
        with_loaded_state(servers.session(), 2)
    assert with_loaded_state(servers.session(), None) == with_loaded_state(Servers().session(), None)


class Gradual:
    """A program that begins to train its first layer in the second epoch, while a scheduler changes the rate."""

    def __init__(self, freezes, kill=None):
        self.freezes, self.kill = freezes, kill

    def run(self):
        servers = Servers()
        while True:
            try:
                return self.train(servers.session())
            except Killed:
                continue

    def train(self, session):
        paddle.seed(1)
        model = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 1))
        rate = paddle.optimizer.lr.ExponentialDecay(0.05, 0.8)
        freeze(model[0], True)
        optimizer = paddle.optimizer.Adam(rate, parameters=model.parameters())
        optimizer = DistributedOptimizer(optimizer, session)
        loop = session.batches([np.full([2, 3], number, np.float32) for number in range(4)], 3, keep=[rate])
        for x in loop:
            self.freezes(loop, model[0])
            model(paddle.to_tensor(x)).square().mean().backward()
            optimizer.step()
            if self.kill == 4 * loop.epoch + loop.index:
                self.kill = None
                raise Killed
            optimizer.clear_grad()
            rate.step()
        return [parameter.numpy().tobytes() for parameter in model.parameters()]


def freeze(layer, is_frozen):
    for parameter in layer.parameters():
        parameter.stop_gradient = is_frozen


def by_position(loop, layer):
    freeze(layer, loop.epoch == 0)


def once(loop, layer):
    if (loop.epoch, loop.index) in ((0, 2), (2, 1)):
        freeze(layer, loop.epoch == 2)


@pytest.mark.parametrize("kill", [1, 3, 4, 6, 9, 11])
@pytest.mark.parametrize("freezes", [by_position, once])
def test_a_restarted_trainer_trains_the_same_parameters(freezes, kill):
    program = Gradual(freezes, kill)
    assert program.run() == Gradual(freezes).run()
    assert program.kill is None


def zeroed(session, kill):
    """The first layer has a gradient in the first step only; then one of 0, with which Paddle updates it."""
    paddle.seed(1)
    model = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Linear(4, 1))
    optimizer = DistributedOptimizer(paddle.optimizer.Momentum(0.05, parameters=model.parameters()), session)
    for number in session.batches(list(range(6))):
        optimizer.clear_grad()
        hidden = model[0](paddle.full([2, 3], number + 1.0))
        model[1](hidden if number == 0 else hidden.detach()).square().mean().backward()
        optimizer.step()
        if number == kill:
            raise Killed
    return [parameter.numpy().tobytes() for parameter in model.parameters()]


@pytest.mark.parametrize("kill", [0, 3])
def test_a_restarted_trainer_knows_which_gradients_are_0(kill):
    servers = Servers()
    with pytest.raises(Killed):
        zeroed(servers.session(), kill)
    assert zeroed(servers.session(), None) == zeroed(Servers().session(), None)


def test_what_an_own_loop_has_unfrozen_is_named_after_a_restart(capfd):
    def train(session, steps):
        paddle.seed(1)
        model = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Linear(4, 1))
        freeze(model[0], True)
        optimizer = DistributedOptimizer(paddle.optimizer.SGD(0.05, parameters=model.parameters()), session)
        begins_with = model[0].weight.numpy()
        for number in steps:
            if number == 1:
                freeze(model[0], False)
            model(paddle.full([2, 3], number + 1.0)).square().mean().backward()
            optimizer.step()
            optimizer.clear_grad()
        return begins_with, model[0].weight.numpy()

    servers = Servers()
    _, trained = train(servers.session(), [0, 1, 2])
    begins_with, ends_with = train(servers.session(), [3, 4])
    assert begins_with.tobytes() == trained.tobytes() == ends_with.tobytes()
    said = capfd.readouterr().err
    assert said.count("resumes at step 3: `parameter0`, `parameter1` have been trained, but are frozen in its program") == 1


@pytest.mark.parametrize("keeps", ["model schedule", "model", "schedule"])
def test_what_is_not_kept_is_named(keeps, capfd):
    session = Servers().session()
    model = paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.BatchNorm1D(3), paddle.nn.Linear(3, 1))
    schedule = paddle.optimizer.lr.StepDecay(0.02, 3, 0.7)
    optimizer = paddle.optimizer.Adam(schedule, parameters=model.parameters())
    optimizer = DistributedOptimizer(optimizer, session)
    parts = {"model": model, "schedule": schedule}
    for x in session.batches([paddle.rand([4, 2]), paddle.rand([4, 2])], keep=[parts[name] for name in keeps.split()]):
        model(x).sum().backward()
        optimizer.step()
        schedule.step()
    said = capfd.readouterr().err
    assert ("`batches` does not keep StepDecay:" in said) == (keeps == "model")
    assert ("`batches` does not keep the buffers of Sequential (1._mean, 1._variance):" in said) == (keeps == "schedule")
    assert said.count("\n") == (keeps != "model schedule")
