"""A PyTorch program that is restarted: with `batches` it ends with the bits of the undisturbed run, else the log says what differs."""

import pytest

torch = pytest.importorskip("torch")

from test_ps_batches import Killed, Servers  # noqa: E402
from torch_programs import batch, network, squared_error  # noqa: E402

from paddlecloud import ps  # noqa: E402
from paddlecloud.ps.torch import DistributedOptimizer, EmbeddingBag  # noqa: E402

EPOCHS, SAMPLES, BATCH = 3, 20, 4
STEPS = EPOCHS * SAMPLES // BATCH


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, at):
        source = torch.Generator().manual_seed(at)
        return torch.randn(3, generator=source), torch.randint(0, 9, (4,), generator=source), torch.randn((), generator=source)


class Model(torch.nn.Module):
    def __init__(self, session):
        super().__init__()
        self.bag = EmbeddingBag(session, "words", 3, ps.Adagrad(0.1), init=ps.Uniform(-1, 1), padding_idx=4)
        # Its weight is not contiguous.
        self.conv = torch.nn.Conv2d(2, 4, (1, 2)).to(memory_format=torch.channels_last)
        self.norm, self.drop, self.last = torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)

    def forward(self, x, ids):
        both = torch.stack([x, self.bag(ids)], dim=1)[:, :, None, :]
        return self.last(self.drop(self.norm(torch.tanh(self.conv(both)).flatten(1)))).squeeze(1)


def pretrained(model):
    source = torch.Generator().manual_seed(8)
    state = model.state_dict()
    values = {name: torch.randn(value.shape, generator=source) for name, value in state.items() if "num" not in name}
    model.load_state_dict({**state, **{name: value.abs() for name, value in values.items()}})


def train(session, killed_at):
    torch.manual_seed(1)
    model = Model(session)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=STEPS + 1)
    optimizer = DistributedOptimizer(optimizer, session, model=model)
    pretrained(model)
    loader = torch.utils.data.DataLoader(Data(), BATCH, shuffle=True)
    loop = session.batches(loader, EPOCHS, keep=[model, scheduler])
    for x, ids, y in loop:
        number = loop.epoch * len(loader) + loop.index
        optimizer.zero_grad()
        loss = ((model(x, ids) - y) ** 2).mean()
        if killed_at == ("backward", number):
            raise Killed
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if killed_at == ("step", number):
            raise Killed
        optimizer.step()
        if killed_at == ("after", number):
            raise Killed
        scheduler.step()
    model.eval()
    rows = session.lookup("words", range(9), train=False)
    return [value.clone() for value in model.state_dict().values()], rows, scheduler.get_last_lr(), optimizer.param_groups[0]["betas"]


def run(*kills):
    servers, kills = Servers(), list(kills)
    while True:
        try:
            return train(servers.session(), kills.pop(0) if kills else None)
        except Killed:
            continue


def test_torch_a_restarted_trainer_ends_with_the_bits_of_the_undisturbed_run():
    undisturbed = run()
    points = [(point, number) for number in (0, 1, 6, STEPS - 1) for point in ("backward", "step", "after")]
    for kills in [*([point] for point in points), [("step", 2), ("after", 7), ("backward", 7)]]:
        disturbed = run(*kills)
        for expected, found in zip(undisturbed[0], disturbed[0]):
            assert torch.equal(expected, found), kills
        assert undisturbed[1].tobytes() == disturbed[1].tobytes(), kills
        assert undisturbed[2:] == disturbed[2:], kills


def ordinary(session, steps):
    model = network()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), session)
    for number in range(steps):
        optimizer.zero_grad()
        squared_error(model, batch(0, number)).backward()
        optimizer.step()
    return model, optimizer


def test_torch_the_log_of_an_ordinary_loop_says_that_it_begins_at_its_start(capfd):
    servers = Servers()
    ordinary(servers.session(), 3)
    assert "resumes" not in capfd.readouterr().err
    ordinary(servers.session(), 3)
    said = capfd.readouterr().err
    assert said.count("trainer 0 resumes at step 3. Its own loop, random generators and schedulers do not: use `batches`") == 1


def test_torch_parameters_are_fetched_again_when_training_goes_back():
    model, optimizer = ordinary(Servers().session(), 2)
    before = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.mul_(2)
    optimizer.session.go_back()
    assert torch.equal(model[0].weight, before)
    optimizer.step()


def test_torch_a_parameter_declared_later_than_the_step_of_a_checkpoint_is_declared_again(monkeypatch):
    """The servers do not know it then, and refuse to give its values."""
    session = Servers().session()
    model, added = torch.nn.Linear(2, 1), torch.nn.Parameter(torch.ones(3))
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), session)

    def step():
        (model(torch.ones(1, 2)).sum() + added.sum()).backward()
        optimizer.step()

    step()
    optimizer.add_param_group({"params": [added]})
    step()
    assert not torch.equal(added, torch.ones(3))
    pull = session.pull

    def pull_before(names, **options):
        if "group1.0" in names:
            raise ValueError("there is no tensor `group1.0`")
        return pull(names, **options)

    monkeypatch.setattr(session, "pull", pull_before)
    optimizer.fetch()
    assert torch.equal(added, torch.ones(3))
    monkeypatch.undo()
    step()
    assert [parameter.name for parameter in optimizer._parameters] == ["group0.0", "group0.1", "group1.0"]


class Gradual:
    """A program that begins to train its first layer later, while a scheduler changes the numbers."""

    def __init__(self, unfreeze, kill=None):
        self.unfreeze, self.kill = unfreeze, kill

    def run(self):
        servers = Servers()
        while True:
            try:
                return self.train(servers.session())
            except Killed:
                continue

    def train(self, session):
        model = network()
        first, last = model[0], model[2]
        first.requires_grad_(False)
        parameters = last.parameters() if self.unfreeze is as_a_group else model.parameters()
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        schedulers = torch.optim.lr_scheduler
        # OneCycleLR does not know groups that were added later.
        one_cycle = schedulers.OneCycleLR(optimizer, max_lr=0.1, total_steps=20) if self.unfreeze is not as_a_group else None
        scheduler = one_cycle or schedulers.ExponentialLR(optimizer, 0.9)
        optimizer = DistributedOptimizer(optimizer, session)
        loop = session.batches(list(range(4)), 3, keep=[scheduler])
        for number in loop:
            number += 4 * loop.epoch
            self.unfreeze(loop, optimizer, first)
            optimizer.zero_grad(set_to_none=True)
            squared_error(model, batch(0, number)).backward()
            optimizer.step()
            if self.kill == number:
                self.kill = None
                raise Killed
            scheduler.step()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def by_position(loop, optimizer, layer):
    layer.requires_grad_(loop.epoch > 0)


def as_a_group(loop, optimizer, layer):
    if loop.epoch > 0 and len(optimizer.param_groups) == 1:
        layer.requires_grad_(True)
        optimizer.add_param_group({"params": layer.parameters(), "lr": 0.5 * optimizer.param_groups[0]["lr"], "momentum": 0.8})


def once(loop, optimizer, layer):
    if (loop.epoch, loop.index) in ((0, 2), (2, 1)):
        layer.requires_grad_(loop.epoch == 0)


@pytest.mark.parametrize("kill", [1, 2, 3, 4, 6, 9, 11])
def test_torch_a_restarted_trainer_knows_what_it_trains(kill):
    """Parameters that the program unfroze at one batch, and froze again at another."""
    program = Gradual(once, kill)
    assert torch.equal(program.run(), Gradual(once).run())
    assert program.kill is None


def zeroed(session, kill):
    """The first layer has a gradient in the first step only; then one of 0, with which PyTorch updates it."""
    model = network()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), session)
    for number in session.batches(list(range(6))):
        optimizer.zero_grad(set_to_none=False)
        x = batch(0, number)
        hidden = model[0](x)
        loss = model[2](torch.tanh(hidden if number == 0 else hidden.detach())) - x.sum(dim=1, keepdim=True)
        (loss**2).mean().backward()
        optimizer.step()
        if number == kill:
            raise Killed
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("kill", [0, 3])
def test_torch_a_restarted_trainer_knows_which_gradients_are_0(kill):
    servers = Servers()
    with pytest.raises(Killed):
        zeroed(servers.session(), kill)
    assert torch.equal(zeroed(servers.session(), None), zeroed(Servers().session(), None))


def test_torch_a_group_that_is_added_once_is_missed_by_name():
    def train(session, adds):
        model = network()
        optimizer = DistributedOptimizer(torch.optim.SGD(model[2].parameters(), lr=0.1), session)
        for number in session.batches(list(range(6))):
            if adds and number == 1:
                optimizer.add_param_group({"params": model[0].parameters()})
            squared_error(model, batch(0, number)).backward()
            optimizer.step()
            if adds and number == 3:
                raise Killed

    servers = Servers()
    with pytest.raises(Killed):
        train(servers.session(), True)
    with pytest.raises(ps.Error, match=r"the kept state has 2 parameter groups of SGD, this program has 1: add groups by"):
        train(servers.session(), False)


def test_torch_what_an_own_loop_has_unfrozen_is_named_after_a_restart(capfd):
    def train(session, numbers):
        model = network()
        model[0].requires_grad_(False)
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), session)
        begins_with = model[0].weight.detach().clone()
        for number in numbers:
            if number == 1:
                model[0].requires_grad_(True)
            optimizer.zero_grad(set_to_none=True)
            squared_error(model, batch(0, number)).backward()
            optimizer.step()
        return begins_with, model[0].weight.detach()

    servers = Servers()
    _, trained = train(servers.session(), [0, 1, 2])
    begins_with, ends_with = train(servers.session(), [3, 4])
    assert torch.equal(begins_with, trained), "its first batch would be computed with the values of the program's start"
    assert torch.equal(ends_with, trained)
    said = capfd.readouterr().err
    assert said.count("trainer 0 resumes at step 3: `group0.0`, `group0.1` have been trained, but are frozen in its program") == 1
    assert "Unfreeze by the position (`loop.epoch` or `session.step`)" in said


@pytest.mark.parametrize("kill", [3, 4, 6, 11])
@pytest.mark.parametrize("unfreeze", [by_position, as_a_group])
def test_torch_a_restarted_trainer_declares_a_later_parameter_as_it_was(unfreeze, kill):
    """With another rate it would be refused."""
    program = Gradual(unfreeze, kill)
    assert torch.equal(program.run(), Gradual(unfreeze).run())
    assert program.kill is None
