"""`DistributedOptimizer` for PyTorch: one trainer ends where the plain script does. Tensors are used in place."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from paddlecloud import ps  # noqa: E402
from paddlecloud.ps import arrays  # noqa: E402
from paddlecloud.ps.torch import DistributedOptimizer, Embedding  # noqa: E402

STEPS = 100

# The rates are usual ones. PyTorch corrects Adam's bias in double precision and the servers in float32 as Paddle does: at ten times the rate the
# results differ by 5e-6.
KINDS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.005),
    "adamw": lambda p: torch.optim.AdamW(p, 0.005),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.05),
}


def train(kind, wrap, *, accumulate=1, schedule=False, frozen=False, groups=False):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model[0].weight.requires_grad = not frozen
    parameters = model.parameters()
    if groups:
        parameters = [{"params": model[0].parameters(), "lr": 0.001}, {"params": model[2].parameters()}]
    optimizer = wrap(KINDS[kind](parameters))
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 30, 0.5) if schedule else None
    source = np.random.default_rng(4)
    for _ in range(STEPS):
        for _ in range(accumulate):
            x = torch.from_numpy(source.normal(size=(16, 5)).astype(np.float32))
            loss = ((model(x) - x.sum(dim=1, keepdim=True)) ** 2).mean() / accumulate
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rates:
            rates.step()
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])


def distributed(optimizer):
    return DistributedOptimizer(optimizer, ps.connect(stall=0))


@pytest.mark.parametrize("kind", KINDS)
def test_torch_one_trainer_equals_the_plain_script(kind):
    plain, ours = train(kind, lambda optimizer: optimizer), train(kind, distributed)
    assert np.abs(plain - ours).max() < 1e-6


@pytest.mark.parametrize("option", [{"accumulate": 3}, {"schedule": True}, {"frozen": True}, {"groups": True}], ids=str)
def test_torch_scripts_with_options_are_the_same_too(option):
    plain, ours = train("adam", lambda optimizer: optimizer, **option), train("adam", distributed, **option)
    assert np.abs(plain - ours).max() < 1e-6


def test_torch_tensors_are_used_in_place():
    tensor = torch.zeros(3, 4, requires_grad=True)
    assert arrays.floats(tensor, "w").ctypes.data == tensor.data_ptr()
    assert arrays.writable(tensor, "w").ctypes.data == tensor.data_ptr()


def test_torch_an_embedding_trains():
    session = ps.connect(stall=0)
    embedding = Embedding(session, "emb", 4, ps.SGD(0.5), init=ps.Uniform(-1, 1))
    before = session.lookup("emb", [1, 2]).copy()
    embedding(torch.tensor([1, 2, 2])).sum().backward()
    session.end_step()
    assert np.allclose(before - session.lookup("emb", [1, 2]), [[0.5], [1.0]])
