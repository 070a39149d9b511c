"""`DistributedOptimizer` for PaddlePaddle: one trainer ends where the plain script does."""

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
if not hasattr(paddle, "nn"):  # ours, without the framework
    pytest.skip("PaddlePaddle is not installed", allow_module_level=True)

from paddlecloud import ps  # noqa: E402
from paddlecloud.ps import arrays  # noqa: E402
from paddlecloud.ps.paddle import DistributedOptimizer, Embedding, EmbeddingBag  # noqa: E402

STEPS = 100

KINDS = {
    "sgd": lambda p, lr: paddle.optimizer.SGD(lr, parameters=p, weight_decay=0.01),
    "momentum": lambda p, lr: paddle.optimizer.Momentum(lr, 0.9, parameters=p, use_nesterov=True),
    "adam": lambda p, lr: paddle.optimizer.Adam(lr, parameters=p),
    "adamw": lambda p, lr: paddle.optimizer.AdamW(lr, parameters=p, weight_decay=0.05),
    "adagrad": lambda p, lr: paddle.optimizer.Adagrad(lr, parameters=p),
    "adamax": lambda p, lr: paddle.optimizer.Adamax(lr, parameters=p),
    # At a higher rate its steps at first are so large that training doubles every rounding.
    "rmsprop": lambda p, lr: paddle.optimizer.RMSProp(lr / 10, momentum=0.5, parameters=p),
    "adadelta": lambda p, lr: paddle.optimizer.Adadelta(lr, parameters=p),
}


def train(kind, wrap, *, accumulate=1, schedule=False, frozen=False):
    paddle.seed(3)
    model = paddle.nn.Sequential(paddle.nn.Linear(5, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
    if frozen:
        model[0].weight.stop_gradient = True
    rate = paddle.optimizer.lr.StepDecay(0.05, 30, 0.5) if schedule else 0.05
    optimizer = wrap(KINDS[kind](model.parameters(), rate))
    source = np.random.default_rng(4)
    for _ in range(STEPS):
        for _ in range(accumulate):
            x = paddle.to_tensor(source.normal(size=(16, 5)).astype(np.float32))
            loss = ((model(x) - x.sum(axis=1, keepdim=True)) ** 2).mean() / accumulate
            loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if schedule:
            rate.step()
    return np.concatenate([parameter.numpy().ravel() for parameter in model.parameters()])


def distributed(optimizer):
    return DistributedOptimizer(optimizer, ps.connect(stall=0))


@pytest.mark.parametrize("kind", KINDS)
def test_one_trainer_equals_the_plain_script(kind):
    plain, ours = train(kind, lambda optimizer: optimizer), train(kind, distributed)
    assert np.abs(plain - ours).max() < 1e-6


@pytest.mark.parametrize("option", [{"accumulate": 3}, {"schedule": True}, {"frozen": True}], ids=str)
def test_scripts_with_options_are_the_same_too(option):
    plain, ours = train("adam", lambda optimizer: optimizer, **option), train("adam", distributed, **option)
    assert np.abs(plain - ours).max() < 1e-6


def test_an_optimizer_the_servers_do_not_know_is_refused():
    model = paddle.nn.Linear(2, 1)
    with pytest.raises(ValueError, match="do not support Lamb"):
        distributed(paddle.optimizer.Lamb(0.1, parameters=model.parameters()))


def test_tensors_are_used_in_place():
    tensor = paddle.zeros([3, 4])
    assert arrays.floats(tensor, "w").ctypes.data == tensor.data_ptr()
    assert arrays.writable(tensor, "w").ctypes.data == tensor.data_ptr()


def test_an_embedding_trains_and_evaluation_creates_no_rows():
    session = ps.connect(stall=0)
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


def test_a_bag_is_the_sum_or_the_mean_of_its_rows():
    session = ps.connect(stall=0)
    bags = [EmbeddingBag(session, mode, 3, mode=mode, init=ps.Uniform(-1, 1)) for mode in ("sum", "mean")]
    ids = paddle.to_tensor([[1, 2], [3, 3]])
    assert np.allclose(bags[0](ids).numpy(), session.lookup("sum", ids.numpy()).sum(axis=1))
    assert np.allclose(bags[1](ids).numpy(), session.lookup("mean", ids.numpy()).mean(axis=1))
