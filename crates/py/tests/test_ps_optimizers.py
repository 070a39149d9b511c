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


CASES = [
    (sgd, ps.SGD(0.05)),
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


@pytest.mark.parametrize(("rule", "optimizer"), [CASES[0], CASES[4]], ids=["sgd", "adam"])
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
