"""`session.batches` with PyTorch's loaders, modules and schedulers: a killed trainer ends with the bits of an undisturbed one."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_ps_batches import Killed, Servers  # noqa: E402

from paddlecloud import ps  # noqa: E402
from paddlecloud.ps.torch import DistributedOptimizer, Embedding  # noqa: E402

ROWS, BATCH, EPOCHS = 40, 8, 3


class Samples(torch.utils.data.Dataset):
    """Samples with noise from the generators of Python, numpy and PyTorch."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        noise = random.random() + np.random.random() + float(torch.rand(()))
        return row, torch.full((3,), row / ROWS + noise, dtype=torch.float32)


def one_cycle(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=200)


def chained(optimizer):
    """Each rate is computed from the one before, which is in the parameter groups alone."""
    halving = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.9)
    return torch.optim.lr_scheduler.ChainedScheduler([halving, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)])


def plateau(optimizer):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)


def sequence(optimizer):
    made = torch.optim.lr_scheduler
    first = made.LinearLR(optimizer, 0.1, total_iters=4)
    return made.SequentialLR(optimizer, [first, made.ExponentialLR(optimizer, 0.9)], milestones=[4])


def plain_loader(samples):
    return torch.utils.data.DataLoader(samples, BATCH, shuffle=True)


def own_generator(samples):
    generator = torch.Generator().manual_seed(5)
    return torch.utils.data.DataLoader(samples, BATCH, shuffle=True, generator=generator)


def processes(samples):
    return torch.utils.data.DataLoader(samples, BATCH, shuffle=True, num_workers=2)


def distributed_sampler(samples):
    sampler = torch.utils.data.distributed.DistributedSampler(samples, 1, 0, shuffle=True, seed=3)
    return torch.utils.data.DataLoader(samples, BATCH, sampler=sampler)


class Program:
    """A trainer's program: run again from the top after every kill."""

    def __init__(self, kill=None, schedule=one_cycle, loader=plain_loader):
        self.kill, self.schedule, self.loader = kill, schedule, loader

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
        torch.manual_seed(1)
        random.seed(2)
        np.random.seed(3)
        embedding = Embedding(session, "emb", 3, ps.Adagrad(0.1), init=ps.Uniform(-1, 1), seed=4)
        layers = [torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)]
        model = torch.nn.Sequential(*layers)
        optimizer = DistributedOptimizer(torch.optim.Adam(model.parameters(), 0.01), session)
        schedule, mean = self.schedule(optimizer), torch.optim.swa_utils.AveragedModel(model)
        loader = self.loader(Samples())
        batches = session.batches(loader, EPOCHS, keep=[model, schedule, mean])
        for rows, x in batches:
            number = batches.epoch * (ROWS // BATCH) + batches.index
            self.at("before", number)
            optimizer.zero_grad()
            out = model(torch.cat([embedding(rows), x], dim=1))
            loss = ((out - rows[:, None] / ROWS) ** 2).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            self.at("pushed", number)
            optimizer.step()
            self.at("ended", number)
            # What is computed after the end of the step is the same in a repeated batch; the loss is not.
            schedule.step(*([float(model[0].weight.abs().sum())] if self.schedule is plateau else []))
            mean.update_parameters(model)
            self.at("after", number)
        rows = session.lookup("emb", np.arange(ROWS), train=False)
        states = [*model.state_dict().values(), *mean.state_dict().values(), torch.rand(3)]
        rates = [group["lr"] for group in optimizer.param_groups]
        return rows.tobytes(), [state.numpy().tobytes() for state in states], rates, random.random(), np.random.random()


@pytest.fixture(scope="module")
def undisturbed():
    found = {}

    def run(schedule=one_cycle, loader=plain_loader):
        if (schedule, loader) not in found:
            found[schedule, loader] = Program(None, schedule, loader).run()
        return found[schedule, loader]

    return run


@pytest.mark.parametrize("batch", [0, 1, 4, 5, 8, 14])
@pytest.mark.parametrize("point", ["before", "pushed", "ended", "after"])
def test_torch_a_killed_trainer_ends_with_the_bits_of_an_undisturbed_one(undisturbed, point, batch):
    program = Program((point, batch))
    assert program.run() == undisturbed()
    assert program.kill is None


@pytest.mark.parametrize("kill", [("before", 4), ("ended", 7), ("after", 9)])
@pytest.mark.parametrize("schedule", [chained, plateau, sequence])
def test_torch_schedulers_continue(undisturbed, schedule, kill):
    assert Program(kill, schedule).run() == undisturbed(schedule)


@pytest.mark.parametrize("kill", [("before", 6), ("ended", 4), ("after", 11)])
@pytest.mark.parametrize("loader", [own_generator, processes, distributed_sampler])
def test_torch_loaders_continue(undisturbed, loader, kill):
    assert Program(kill, loader=loader).run() == undisturbed(loader=loader)


def two_steps(make_schedule, keeps, capfd, layers=(), kept_optimizer=False):
    """What is said by a program with a scheduler, with one kind of thing in `keep`."""
    session = Servers().session()
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), *layers, torch.nn.Linear(3, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    before = None if kept_optimizer else make_schedule(optimizer)
    optimizer = DistributedOptimizer(optimizer, session)
    schedule = before or make_schedule(optimizer)
    for x in session.batches([torch.ones(4, 2), torch.rand(4, 2)], keep=keeps(model, schedule)):
        model(x).sum().backward()
        optimizer.step()
        schedule.step(*([1.0] if make_schedule is plateau else []))
    return capfd.readouterr().err


SAYS = "paddlecloud.ps: `batches` does not keep {}: a restarted trainer begins with what they are at its start; add them to `keep`\n"


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("schedule", [one_cycle, chained, plateau, sequence])
def test_torch_a_scheduler_that_is_not_kept_is_named(schedule, is_after, capfd):
    said = two_steps(schedule, lambda model, schedule: [], capfd, kept_optimizer=is_after)
    name = type(schedule(torch.optim.SGD([torch.zeros(1)], 0.1, momentum=0.9))).__name__
    assert said == SAYS.format(name)
    assert two_steps(schedule, lambda model, schedule: [schedule], capfd, kept_optimizer=is_after) == ""


class Held:
    """A program's own object that keeps several."""

    def __init__(self, *parts):
        self.parts = parts

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states):
        for part, state in zip(self.parts, states):
            part.load_state_dict(state)


def test_torch_a_model_with_buffers_that_is_not_kept_is_named(capfd):
    buffers = torch.nn.BatchNorm1d(3, affine=False)
    said = two_steps(one_cycle, lambda model, schedule: [schedule], capfd, [buffers])
    assert said == SAYS.format("the buffers of Sequential (1.running_mean, 1.running_var, …)")
    for keeps in (
        lambda model, schedule: [model, schedule],
        lambda model, schedule: [buffers, schedule],
        lambda model, schedule: [Held(model, schedule)],
    ):
        assert two_steps(one_cycle, keeps, capfd, [buffers]) == ""


def test_torch_buffers_that_do_not_change_need_not_be_kept(capfd):
    constant = torch.nn.Module()
    constant.register_buffer("scale", torch.full((3,), 2.0))
    constant.forward = lambda x: x * constant.scale
    frozen = torch.nn.BatchNorm1d(3, affine=False).eval()
    assert two_steps(one_cycle, lambda model, schedule: [schedule], capfd, [constant, frozen]) == ""
