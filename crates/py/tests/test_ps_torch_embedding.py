"""Our `Embedding` and `EmbeddingBag` for PyTorch: values and gradients of PyTorch's own, copies, and what is refused."""

import copy
import io
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from paddlecloud import ps  # noqa: E402
from paddlecloud.ps.torch import Embedding, EmbeddingBag, attach  # noqa: E402

COUNT, SIZE = 20, 4
IDS = torch.tensor([3, 7, 3, 0, 19, 7, 5, 5, 5, 0, 11, 2])
OFFSETS = torch.tensor([0, 3, 3, 8])


def session_and_rows():
    session = ps.connect(stall=0)
    session.table("emb", SIZE, ps.SGD(1.0), init=ps.Uniform(-1, 1))
    rows = session.lookup("emb", np.arange(COUNT)).copy()
    return session, torch.from_numpy(rows)


def pushed(session, rows):
    """The gradients that came to the servers: their rate is 1."""
    session.end_step()
    return rows.numpy() - session.lookup("emb", np.arange(COUNT), train=False)


def trained(module, *arguments, **options):
    """The result, after a backward whose gradients differ from element to element."""
    found = module(*arguments, **options)
    (found * torch.linspace(-1, 2, found.numel()).reshape(found.shape)).sum().backward()
    return found.detach()


def compare(made, plain, *arguments, **options):
    """Our module and PyTorch's with the same rows."""
    session, rows = session_and_rows()
    weight = rows.clone().requires_grad_()
    theirs = plain(weight)
    expected = trained(theirs, *arguments, **options)
    found = trained(made(session), *arguments, **options)
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)
    gradients = theirs.weight.grad
    assert np.abs(pushed(session, rows) - gradients.numpy()).max() < 1e-6
    assert float(gradients.abs().max()) > 0.1


def ours(kind, **options):
    return lambda session: kind(session, "emb", SIZE, ps.SGD(1.0), init=ps.Uniform(-1, 1), **options)


def theirs(kind, **options):
    def made(weight):
        module = kind(COUNT, SIZE, **options)
        module.weight = torch.nn.Parameter(weight.detach().clone())
        return module

    return made


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [{}, {"padding_idx": 5}, {"padding_idx": 3}], ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_torch_bags_with_offsets(mode, padding, last):
    options = {"mode": mode, "include_last_offset": last, **padding}
    offsets = torch.cat([OFFSETS, torch.tensor([len(IDS)])]) if last else OFFSETS
    compare(ours(EmbeddingBag, **options), theirs(torch.nn.EmbeddingBag, **options), IDS, offsets)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [{}, {"padding_idx": 5}], ids=str)
@pytest.mark.parametrize("ids", [IDS.reshape(3, 4), IDS.reshape(3, 4).int()], ids=["int64", "int32"])
def test_torch_bags_of_rows(mode, padding, ids):
    compare(ours(EmbeddingBag, mode=mode, **padding), theirs(torch.nn.EmbeddingBag, mode=mode, **padding), ids)


@pytest.mark.parametrize("options", [{"mode": "sum"}, {"mode": "sum", "padding_idx": 7}], ids=str)
def test_torch_bags_with_weights(options):
    weights = torch.linspace(0.5, 2, len(IDS))
    made = ours(EmbeddingBag, **options), theirs(torch.nn.EmbeddingBag, **options)
    compare(*made, IDS, OFFSETS, per_sample_weights=weights)
    compare(*made, IDS.reshape(3, 4), None, weights.reshape(3, 4))


def test_torch_the_usual_mode_is_the_mean():
    compare(ours(EmbeddingBag), theirs(torch.nn.EmbeddingBag), IDS, OFFSETS)


def test_torch_weights_are_learned():
    session, rows = session_and_rows()
    weights = [torch.linspace(0.5, 2, len(IDS)).requires_grad_() for _ in range(2)]
    trained(ours(EmbeddingBag, mode="sum")(session), IDS, OFFSETS, weights[0])
    trained(theirs(torch.nn.EmbeddingBag, mode="sum")(rows), IDS, OFFSETS, weights[1])
    assert torch.allclose(weights[0].grad, weights[1].grad, atol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_torch_bags_of_padding_alone_are_zero(mode):
    options = {"mode": mode, "padding_idx": 5}
    session, rows = session_and_rows()
    found = ours(EmbeddingBag, **options)(session)(torch.tensor([5, 5]), torch.tensor([0, 2]))
    assert found.tolist() == theirs(torch.nn.EmbeddingBag, **options)(rows)(torch.tensor([5, 5]), torch.tensor([0, 2])).tolist()


@pytest.mark.parametrize("padding", [{}, {"padding_idx": 5}], ids=str)
@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 2)], ids=str)
def test_torch_an_embedding(padding, shape):
    session, rows = session_and_rows()
    plain = theirs(torch.nn.Embedding, **padding)(rows)
    if padding:
        with torch.no_grad():
            plain.weight[5] = 0
    expected = trained(plain, IDS.reshape(shape))
    found = trained(ours(Embedding, **padding)(session), IDS.reshape(shape))
    assert np.array_equal(found, expected)
    assert np.abs(pushed(session, rows) - plain.weight.grad.numpy()).max() < 1e-6


def test_torch_an_embedding_trains():
    session = ps.connect(stall=0)
    embedding = Embedding(session, "emb", 4, ps.SGD(0.5), init=ps.Uniform(-1, 1))
    before = session.lookup("emb", [1, 2]).copy()
    embedding(torch.tensor([1, 2, 2])).sum().backward()
    session.end_step()
    assert np.allclose(before - session.lookup("emb", [1, 2]), [[0.5], [1.0]])


def rows_of(session):
    return session.stat()[0]["tensors"][0]["rows"]


@pytest.mark.parametrize("kind", [Embedding, EmbeddingBag])
def test_torch_only_training_creates_rows(kind):
    session = ps.connect(stall=0)
    module = kind(session, "emb", 4, ps.SGD(0.5), padding_idx=2)
    with torch.no_grad():
        module(torch.tensor([[1, 2]]))
    module.eval()
    evaluated = module(torch.tensor([[1, 2]]))
    assert rows_of(session) == 0
    with pytest.raises(ValueError, match=r"the rows of `emb` were looked up in evaluation; call `train\(\)`"):
        evaluated.sum().backward()
    module.train()
    module(torch.tensor([[1, 2]]))
    assert rows_of(session) == 1


class Model(torch.nn.Module):
    def __init__(self, session):
        super().__init__()
        self.bag = EmbeddingBag(session, "emb", SIZE, ps.SGD(1.0), mode="sum", init=ps.Uniform(-1, 1))
        self.last = torch.nn.Linear(SIZE, 1)

    def forward(self, ids):
        return self.last(self.bag(ids))


def test_torch_a_copied_model_has_the_same_rows():
    session = ps.connect(stall=0)
    model = Model(session)
    ids = torch.tensor([[1, 2], [3, 4]])
    assert torch.equal(copy.deepcopy(model)(ids), model(ids))
    assert rows_of(session) == 4


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("way", [lambda model: pickle.loads(pickle.dumps(model)), saved_and_loaded])
def test_torch_a_pickled_model_is_attached_to_a_session(way):
    session = ps.connect(stall=0)
    model = Model(session)
    ids = torch.tensor([[1, 2], [3, 4]])
    expected = model(ids)
    loaded = way(model)
    with pytest.raises(ValueError, match=r"the embedding `emb` was loaded from a file; call `attach\(model, session\)` first"):
        loaded(ids)
    assert torch.equal(attach(loaded, session)(ids), expected)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda bag: bag(torch.tensor([[3, -1]])), "ids of `emb` must not be negative, not -1; for padding use `padding_idx`"),
        (lambda bag: bag(torch.tensor([[3.0]])), "ids of `emb` must be int32 or int64, not float32"),
        (lambda bag: bag(torch.tensor([[3]]), torch.tensor([0])), "`ids` must have one dimension with `offsets`, not 2"),
    ],
)
def test_torch_ids_that_are_none_are_refused(act, message):
    bag = EmbeddingBag(ps.connect(stall=0), "emb", 4)
    with pytest.raises((ValueError, TypeError)) as error:
        act(bag)
    assert message in str(error.value)


def test_torch_settings_of_bags_that_are_none_are_refused():
    session = ps.connect(stall=0)
    with pytest.raises(ValueError, match="`mode` must be 'sum', 'mean' or 'max', not 'min'"):
        EmbeddingBag(session, "emb", 4, mode="min")
    with pytest.raises(ValueError, match="`padding_idx` must not be negative, not -1"):
        EmbeddingBag(session, "emb", 4, padding_idx=-1)
    with pytest.raises(TypeError, match="max_norm"):
        EmbeddingBag(session, "emb", 4, max_norm=1.0)
