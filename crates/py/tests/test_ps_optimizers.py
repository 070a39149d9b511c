"""Every optimizer of the parameter server against an independent program in numpy: the same bits after 1,000 updates."""

import numpy as np
import pytest

from paddlecloud import ps

F = np.float32
STEPS = 1000
SIZE = 37


def sgd(w, g, s, lr):
    return w - lr * g


def momentum(w, g, s, lr):
    s["v"] = F(0.9) * s.get("v", F(0)) + g
    return w - lr * s["v"]


def nesterov(w, g, s, lr):
    s["v"] = F(0.9) * s.get("v", F(0)) + g
    return w - lr * (g + F(0.9) * s["v"])


def adagrad(w, g, s, lr):
    s["a"] = s.get("a", F(0)) + g * g
    return w - lr * g / (np.sqrt(s["a"]) + F(1e-6))


def row_adagrad(w, g, s, lr):
    s["a"] = s.get("a", F(0)) + np.cumsum(g * g, dtype=F)[-1] / F(len(g))
    return w - lr * g / (np.sqrt(s["a"]) + F(1e-6))


def adam(w, g, s, lr, lost=F(0)):
    b1, b2 = F(0.9), F(0.999)
    s["m"] = b1 * s.get("m", F(0)) + (F(1) - b1) * g
    s["v"] = b2 * s.get("v", F(0)) + (F(1) - b2) * (g * g)
    s["p1"] = s.get("p1", F(1)) * b1
    s["p2"] = s.get("p2", F(1)) * b2
    rate = lr / (F(1) - s["p1"])
    return w - lost * w - rate * (s["m"] / (np.sqrt(s["v"]) / np.sqrt(F(1) - s["p2"]) + F(1e-8)))


def adamw(w, g, s, lr):
    return adam(w, g, s, lr, lr * F(0.01))


def rmsprop(w, g, s, lr):
    s["s"] = F(0.95) * s.get("s", F(0)) + (F(1) - F(0.95)) * (g * g)
    return w - lr * g / np.sqrt(s["s"] + F(1e-6))


def rmsprop_with_momentum(w, g, s, lr):
    s["s"] = F(0.95) * s.get("s", F(0)) + (F(1) - F(0.95)) * (g * g)
    s["v"] = F(0.8) * s.get("v", F(0)) + lr * g / np.sqrt(s["s"] + F(1e-6))
    return w - s["v"]


def adadelta(w, g, s, lr):
    rho, epsilon = F(0.95), F(1e-6)
    s["s"] = rho * s.get("s", F(0)) + (F(1) - rho) * (g * g)
    change = np.sqrt((s.get("c", F(0)) + epsilon) / (s["s"] + epsilon)) * g
    s["c"] = rho * s.get("c", F(0)) + (F(1) - rho) * (change * change)
    return w - lr * change


def ftrl(w, g, s, lr):
    l1, l2, beta = F(0.02), F(0.1), F(1)
    n = s.get("n", F(0)) + g * g
    before, after = np.sqrt(s.get("n", F(0))), np.sqrt(n)
    s["n"] = n
    s["z"] = s.get("z", F(0)) + (g - (after - before) / lr * w)
    z = s["z"]
    return np.where(np.abs(z) <= l1, F(0), (np.sign(z) * l1 - z) / ((beta + after) / lr + l2))


def adamax(w, g, s, lr):
    b1, b2, epsilon = F(0.9), F(0.999), F(1e-8)
    s["m"] = b1 * s.get("m", F(0)) + (F(1) - b1) * g
    s["u"] = np.maximum(b2 * s.get("u", F(0)) + epsilon, np.abs(g))
    s["p"] = s.get("p", F(1)) * b1
    return w - lr / (F(1) - s["p"]) * (s["m"] / s["u"])


def moved(w, g, s, rate, momentum=F(0.9), decay=F(0.1)):
    """2017: rate and weight decay inside the velocity."""
    s["velocity"] = momentum * s.get("velocity", F(0)) - rate * (g + decay * w)
    return w + s["velocity"]


def momentum_of_2017(w, g, s, lr):
    return moved(w, g, s, lr)


def adagrad_of_2017(w, g, s, lr):
    s["s"] = s.get("s", F(0)) + g * g
    return moved(w, g, s, lr / np.sqrt(s["s"] + F(1e-6)))


def running_square(g, s):
    rho = F(0.95)
    share = F(1) - rho if "s" in s else F(1)
    s["s"] = rho * s.get("s", F(0)) + share * (g * g)


def decayed_adagrad(w, g, s, lr):
    running_square(g, s)
    return w - lr / np.sqrt(s["s"] + F(1e-6)) * (g + F(0.1) * w)


def rmsprop_of_2017(w, g, s, lr):
    rho = F(0.95)
    running_square(g, s)
    s["mean"] = rho * s.get("mean", F(0)) + (F(1) - rho) * g
    return moved(w, g, s, lr / np.sqrt(s["s"] - s["mean"] * s["mean"] + F(1e-6)))


def adadelta_of_2017(w, g, s, lr):
    rho, epsilon = F(0.95), F(1e-6)
    s["s"] = rho * s.get("s", F(0)) + (F(1) - rho) * (g * g)
    factor = np.sqrt((s.get("c", F(0)) + epsilon) / (s["s"] + epsilon))
    s["c"] = rho * s.get("c", F(0)) + (F(1) - rho) * (g * factor * (g * factor))
    return moved(w, g, s, lr * factor)


def dampened(w, g, s, lr):
    """PyTorch: the first velocity is the whole gradient."""
    s["v"] = F(0.9) * s["v"] + (F(1) - F(0.4)) * g if "v" in s else g
    return w - lr * s["v"]


def decaying_adagrad(w, g, s, lr):
    s["a"] = s.get("a", F(0.5)) + g * g
    s["t"] = s.get("t", 0) + 1
    rate = F(0.05 / (1 + (s["t"] - 1) * 0.1))
    return w - rate * g / (np.sqrt(s["a"]) + F(1e-6))


def moments(g, s, rho=F(0.95)):
    s["s"] = rho * s.get("s", F(0)) + (F(1) - rho) * (g * g)
    s["mean"] = rho * s.get("mean", F(0)) + (F(1) - rho) * g
    return s["s"] - s["mean"] * s["mean"]


def centered_rmsprop(w, g, s, lr):
    s["v"] = F(0.8) * s.get("v", F(0)) + lr * g / np.sqrt(moments(g, s) + F(1e-3))
    return w - s["v"]


def rmsprop_of_pytorch(w, g, s, lr):
    s["v"] = F(0.8) * s.get("v", F(0)) + g / (np.sqrt(moments(g, s)) + F(1e-3))
    return w - lr * s["v"]


def adamax_of_pytorch(w, g, s, lr):
    b1, b2 = F(0.9), F(0.999)
    s["t"] = s.get("t", 0) + 1
    s["m"] = b1 * s.get("m", F(0)) + F(1 - 0.9) * g
    s["u"] = np.maximum(b2 * s.get("u", F(0)), np.abs(g) + F(1e-2))
    return w - F(0.05 / (1 - 0.9 ** s["t"])) * (s["m"] / s["u"])


def adamw_of_pytorch(w, g, s, lr):
    b1, b2 = F(0.9), F(0.999)
    s["t"] = s.get("t", 0) + 1
    s["m"] = b1 * s.get("m", F(0)) + F(1 - 0.9) * g
    s["v"] = b2 * s.get("v", F(0)) + F(1 - 0.999) * (g * g)
    root = np.sqrt(s["v"]) / F(np.sqrt(1 - 0.999 ** s["t"])) + F(1e-8)
    return F(1 - 0.05 * 0.01) * w - F(0.05 / (1 - 0.9 ** s["t"])) * (s["m"] / root)


CASES = [
    (sgd, ps.SGD(0.05)),
    (dampened, ps.Momentum(0.05, dampening=0.4)),
    (decaying_adagrad, ps.Adagrad(0.05, lr_decay=0.1, initial=0.5)),
    (centered_rmsprop, ps.RMSProp(0.05, momentum=0.8, epsilon=1e-3, centered=True)),
    (rmsprop_of_pytorch, ps.RMSProp(0.05, momentum=0.8, epsilon=1e-3, centered=True, epsilon_outside=True)),
    (adamax_of_pytorch, ps.Adamax(0.05, epsilon=1e-2, epsilon_inside=True, double=True)),
    (adamw_of_pytorch, ps.AdamW(0.05, double=True)),
    (momentum, ps.Momentum(0.05)),
    (nesterov, ps.Momentum(0.05, nesterov=True)),
    (adagrad, ps.Adagrad(0.05)),
    (adam, ps.Adam(0.05)),
    (adamw, ps.AdamW(0.05)),
    (rmsprop, ps.RMSProp(0.05)),
    (rmsprop_with_momentum, ps.RMSProp(0.05, momentum=0.8)),
    (adadelta, ps.AdaDelta(0.05)),
    (ftrl, ps.Ftrl(0.05, shrink1=0.02, shrink2=0.1)),
    (adamax, ps.Adamax(0.05)),
    (momentum_of_2017, ps.Velocity(0.05, 0.9, l2=0.1)),
    (adagrad_of_2017, ps.Velocity(0.05, 0.9, "adagrad", l2=0.1)),
    (decayed_adagrad, ps.DecayedAdagrad(0.05, l2=0.1)),
    (rmsprop_of_2017, ps.Velocity(0.05, 0.9, "rmsprop", l2=0.1)),
    (adadelta_of_2017, ps.Velocity(0.05, 0.9, "adadelta", l2=0.1)),
]
NAMES = [rule.__name__ for rule, _ in CASES]


def gradients():
    source = np.random.default_rng(1)
    return [source.normal(0, 1, SIZE).astype(F) for _ in range(STEPS)]


def reference(rule, start, prepare=lambda g, w: g):
    w, state = start.copy(), {}
    for g in gradients():
        w = rule(w, prepare(g, w), state, F(0.05)).astype(F)
    return w


@pytest.fixture(scope="module")
def session():
    with ps.connect(mode="async", stall=0) as session:
        yield session


def start():
    return np.random.default_rng(2).normal(0, 1, SIZE).astype(F)


@pytest.mark.parametrize(("rule", "optimizer"), CASES, ids=NAMES)
def test_a_dense_tensor_has_the_bits_of_numpy(session, rule, optimizer):
    name = f"dense {rule.__name__}"
    session.create(name, start(), optimizer)
    for g in gradients():
        session.push({name: g})
    assert session.pull(name).tobytes() == reference(rule, start()).tobytes()


@pytest.mark.parametrize(("rule", "optimizer"), [*CASES, (row_adagrad, ps.RowAdagrad(0.05))], ids=[*NAMES, "row_adagrad"])
def test_a_row_has_the_bits_of_numpy(session, rule, optimizer):
    name = f"table {rule.__name__}"
    session.table(name, SIZE, optimizer, init=ps.Uniform(-1, 1), seed=4)
    first = session.lookup(name, [9])[0].copy()
    for g in gradients():
        session.push_rows(name, [9], g)
    assert session.lookup(name, [9])[0].tobytes() == reference(rule, first).tobytes()


@pytest.mark.parametrize(("rule", "optimizer"), [(sgd, ps.SGD(0.05)), (adam, ps.Adam(0.05))], ids=["sgd", "adam"])
def test_gradients_are_clipped_then_regularized(session, rule, optimizer):
    name = f"prepared {rule.__name__}"
    session.create(name, start(), type(optimizer)(0.05, clip=0.5, l1=0.01, l2=0.1))
    for g in gradients():
        session.push({name: g})

    def prepare(g, w):
        g = np.clip(g, F(-0.5), F(0.5))
        return (g + F(0.1) * w) + F(0.01) * np.sign(w)

    assert session.pull(name).tobytes() == reference(rule, start(), prepare).tobytes()


def test_values_shrink_towards_zero_after_an_update(session):
    session.create("proximal", start(), ps.SGD(0.05, proximal_l1=0.1))
    for g in gradients():
        session.push({"proximal": g})

    def rule(w, g, s, lr):
        w = w - lr * g
        return np.sign(w) * np.maximum(np.abs(w) - lr * F(0.1), F(0))

    assert session.pull("proximal").tobytes() == reference(rule, start()).tobytes()


# Functions of 2017 by the number of samples seen, and the schedules that are the same.
SCHEDULES = {
    "poly": (lambda n: 0.1 * (1 + 0.5 * n) ** -0.75, ps.InversePower(0.1, 0.5, 0.75, by_samples=True)),
    "caffe_poly": (lambda n: 0.1 * (1 - n / 640) ** 2 if n <= 640 else 0, ps.Polynomial(0.1, 640, power=2, by_samples=True)),
    "exp": (lambda n: 0.1 * 0.5 ** (n / 100.5), ps.Exponential(0.1, 0.5, 100.5, by_samples=True)),
    "discexp": (lambda n: 0.1 * 0.5 ** (n // 100), ps.Exponential(0.1, 0.5, 100, staircase=True, by_samples=True)),
    "linear": (lambda n: max(0.1 - 0.001 * n, 0.02), ps.Linear(0.1, 0.001, 0.02, by_samples=True)),
    "manual": (lambda n: 0.1 if n <= 64 else 0.05, ps.Piecewise(0.1, ((65, 0.05),), by_samples=True)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_count_samples(session, name):
    rate, schedule = SCHEDULES[name]
    session.create(f"rate {name}", np.zeros(1, F), ps.SGD(schedule))
    seen, expected = 0, F(0)
    for _ in range(20):
        session.push({f"rate {name}": np.ones(1, F)}, samples=32)
        seen += 32
        expected -= F(rate(seen))
    assert np.abs(session.pull(f"rate {name}") - expected).max() < 1e-7


def test_a_schedule_that_counts_samples_needs_them(session):
    session.create("counted", np.zeros(1, F), ps.SGD(ps.Linear(0.1, 0.001, by_samples=True)))
    with pytest.raises(ps.Error, match="the learning rate of `counted` counts samples; push with `samples=`"):
        session.push({"counted": np.ones(1, F)})


def test_a_push_brings_the_constants_of_its_own_update(session):
    session.create("moved", np.zeros(1, F), ps.Momentum(0.0, 0.5))
    session.table("moved rows", 1, ps.Momentum(0.0, 0.5), init=ps.Zero())
    session.lookup("moved rows", [7])
    for momentum, lr in ((0.5, 1.0), (0.0, 2.0), (0.5, 0.1)):
        own = ps.Momentum(lr, momentum)
        session.push({"moved": np.ones(1, F)}, optimizer=own)
        session.push_rows("moved rows", [7], np.ones((1, 1), F), optimizer=own)
    expected = F(-1) - F(2) - F(0.1) * F(1.5)
    assert session.pull("moved")[0] == session.lookup("moved rows", [7])[0, 0] == expected
    with pytest.raises(ps.Error, match=r"`moved` is declared with momentum\(.*\); a push cannot update it with adam\("):
        session.push({"moved": np.ones(1, F)}, optimizer=ps.Adam(0.1))
    session.push({"moved": np.ones(1, F)}, optimizer=ps.Momentum(5.0, 0.0), lr=0.0)
    assert session.pull("moved")[0] == expected


@pytest.mark.parametrize(("rule", "optimizer"), CASES, ids=NAMES)
def test_the_state_of_an_optimizer_can_be_read_and_replaced(session, rule, optimizer):
    name = f"state/{rule.__name__}"
    session.create(name, start().reshape(37, 1), optimizer)
    for g in gradients()[:20]:
        session.push({name: g})
    values, state = session.pull(name), session.optimizer_state(name)[name]
    assert state.updates == 20 and tuple(state.slots) == optimizer.slots()
    assert all(slot.shape == (37, 1) for slot in state.slots.values())
    after = []
    for _ in range(2):
        session.assign(name, values)
        session.set_optimizer_state(name, state)
        for g in gradients()[:20]:
            session.push({name: g})
        after.append(session.pull(name).tobytes())
    session.assign(name, values)
    for g in gradients()[:20]:
        session.push({name: g})
    assert after[0] == after[1]
    if optimizer.slots():
        assert session.pull(name).tobytes() != after[0], "`assign` clears the state"


def test_state_that_does_not_fit_is_refused(session):
    session.create("fits", np.zeros((2, 3), F), ps.Adam(0.1))
    state = session.optimizer_state("fits")["fits"]
    with pytest.raises(ValueError, match=r"the state of `fits` has \['mean', 'square'\], not \['mean'\]"):
        session.set_optimizer_state("fits", ps.OptimizerState(1, 0, {"mean": np.zeros((2, 3), F)}))
    with pytest.raises(ValueError, match=r"`square` of `fits` has shape \[2, 3\], not \[6\]"):
        session.set_optimizer_state("fits", ps.OptimizerState(1, 0, {**state.slots, "square": np.zeros(6, F)}))


REFUSED = [
    (ps.SGD(float("nan")), "`lr` must be a finite number of at least 0, not NaN"),
    (ps.SGD(-0.1), "`lr` must be a finite number of at least 0, not -0.1"),
    (ps.Adam(0.1, beta1=1), "`beta1` must be at least 0 and below 1, not 1"),
    (ps.Adam(0.1, epsilon=-1), "`epsilon` must be a finite number of at least 0, not -1"),
    (ps.SGD(0.1, clip=-1), "`clip` must be a finite number of at least 0, not -1"),
    (ps.SGD(0.1, l2=float("inf")), "`l2` must be a finite number of at least 0, not inf"),
    (ps.SGD(0.1, average=-1), "`average` must be a whole number of at least 0, not -1"),
    (ps.SGD(0.1, average=1.5), "`average` must be a whole number of at least 0, not 1.5"),
    (ps.AdaDelta(0.1, rho=2), "`rho` must be between 0 and 1, not 2"),
    (ps.Ftrl(0.1, shrink1=-1), "`shrink1` must be a finite number of at least 0, not -1"),
    (ps.SGD(ps.Exponential(0.1, -1)), "`decay` must be a finite number of at least 0, not -1"),
    (ps.SGD(ps.Exponential(0.1, 0.5, 0)), "`every` must be a finite number above 0, not 0"),
    (ps.SGD(ps.Cosine(-1, 10)), "`base` must be a finite number of at least 0, not -1"),
    (ps.SGD(ps.Cosine(0.1, -1)), "`steps` must be a whole number of at least 0, not -1"),
    (ps.SGD(ps.Piecewise(0.1, ((5, -1),))), "`boundaries` must be a finite number of at least 0, not -1"),
    (ps.SGD(ps.Constant(0.1, warmup=-1)), "`warmup` must be a whole number of at least 0, not -1"),
]


@pytest.mark.parametrize(("optimizer", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_constant_out_of_range_is_named(session, optimizer, sentence):
    for declare in (
        lambda: session.create("refused", np.zeros(1, F), optimizer),
        lambda: session.table("refused rows", 1, optimizer),
    ):
        with pytest.raises(ValueError, match="must be") as raised:
            declare()
        assert str(raised.value) == sentence


@pytest.mark.parametrize("lr", [float("nan"), -0.1, float("inf")])
def test_a_rate_of_a_push_is_checked(session, lr):
    session.create("paced", np.zeros(1, F), ps.SGD(0.1))
    with pytest.raises(ValueError, match="`lr` must be a finite number of at least 0"):
        session.push({"paced": np.ones(1, F)}, lr=lr)


def test_what_a_table_cannot_have_is_named(session):
    for options, sentence in (
        ({"row": 0}, "`row` must be between 1 and 65536, not 0"),
        ({"row": -1}, "`row` must be between 1 and 65536, not -1"),
        ({"max_rows": -1}, "`max_rows` must be a whole number of at least 0, not -1"),
        ({"admit_after": -1}, "`admit_after` must be a whole number of at least 0, not -1"),
        ({"init": ps.Uniform(1, -1)}, "`low` must be at most `high`, not 1"),
        ({"init": ps.Normal(0, -1)}, "`deviation` must be a finite number of at least 0, not -1"),
    ):
        with pytest.raises(ValueError, match="must be") as raised:
            session.table("bad", **{"row": 2, **options})
        assert str(raised.value) == sentence


def test_names_that_cannot_be_stored_are_refused(session):
    session.create("layers.0/größe " + "x" * 180, np.zeros(1, F))
    for name, sentence in (
        ("", "a tensor needs a name"),
        ("x" * 201, "it has 201 bytes, more than 200"),
        ("/" * 100, "escaped in a file name it has more than 250 bytes"),
        ("a\0b", "it has a zero byte"),
    ):
        with pytest.raises(ValueError, match=sentence):
            session.create(name, np.zeros(1, F))
        with pytest.raises(ValueError, match=sentence):
            session.table(name, 1)


def test_a_second_declaration_must_agree_with_the_first(session):
    session.create("twice", np.zeros((2, 3), F), ps.Adam(0.1))
    session.create("twice", np.ones((2, 3), F), ps.Adam(0.1))
    with pytest.raises(ps.Error, match=r"`twice` is declared as adam\(lr=0.1, .*; another declaration says sgd\(lr=0.01\)"):
        session.create("twice", np.zeros((2, 3), F))
    with pytest.raises(ps.Error, match=r"`twice` is declared as shape \[2, 3\]; another declaration says shape \[6\]"):
        session.create("twice", np.zeros(6, F), ps.Adam(0.1))
    session.table("twice rows", 2, ps.Adam(0.1))
    with pytest.raises(ps.Error, match="`twice rows` is declared as adam"):
        session.table("twice rows", 2, ps.Adam(0.2))


def test_ids_and_rows_that_cannot_be_are_refused(session):
    session.table("rows", 2)
    for ids in ([2**64], [-(2**63) - 1], np.array([2**70], object)):
        with pytest.raises(ValueError, match="ids must fit into 64 bits"):
            session.lookup("rows", ids)
    with pytest.raises(TypeError, match="ids must be integers, not float64"):
        session.lookup("rows", [1.5])
    assert session.lookup("rows", np.array([2**64 - 1, 0], np.uint64)).shape == (2, 2)
    assert (session.lookup("rows", np.array([-1])) == session.lookup("rows", [2**64 - 1])).all()
    assert session.lookup("rows", []).shape == (0, 2)
    for bad in (np.nan, np.inf):
        with pytest.raises(ps.NotFinite, match="trainer 0 sent NaN or infinite values for `rows`"):
            session.push_rows("rows", [0], np.full((1, 2), bad, F))


def test_load_needs_declared_tensors(tmp_path):
    with ps.connect(mode="async", stall=0) as other:
        other.create("layer/w", np.arange(6, dtype=F).reshape(2, 3))
        other.save(tmp_path)
    with ps.connect(mode="async", stall=0) as empty:
        with pytest.raises(ps.Error, match="this session has no tensors; declare them first"):
            empty.load(tmp_path)
        empty.create("layer/w", np.zeros((2, 3), F))
        empty.load(tmp_path)
        assert (empty.pull("layer/w") == np.arange(6).reshape(2, 3)).all()
