"""The rules of 2017 that differ from today's conventions, and the trainer: each of these fails under today's rule."""

import io
import re

import numpy as np
import pytest

pytest.importorskip("paddle.nn")

import paddle.v2 as paddle


def line(size=2, **attr):
    """y = x w, without a bias, so that one step can be worked out by hand."""
    x = paddle.layer.data("x", paddle.data_type.dense_vector(size))
    y = paddle.layer.data("y", paddle.data_type.dense_vector(1))
    out = paddle.layer.fc(
        x, 1, act=paddle.activation.Linear(), bias_attr=False, param_attr=paddle.attr.Param(name="w", **attr)
    )
    return paddle.layer.square_error_cost(out, y)


def train(cost, batches, optimizer, start, passes=1, handler=None):
    parameters = paddle.parameters.create(cost)
    parameters["w"] = np.asarray(start, np.float32).reshape(parameters.get_shape("w"))
    trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=True)
    trainer.train(lambda: iter(batches), passes, handler)
    return parameters["w"].reshape(-1)


def gradient(batch, w):
    """Of the sum over the batch."""
    return sum(2 * (np.dot(x, w) - y[0]) * np.asarray(x) for x, y in batch)


BATCH = [([1.0, 2.0], [3.0]), ([0.5, -1.0], [1.0]), ([2.0, 0.0], [-1.0])]
START = np.array([0.3, -0.2])


def test_gradients_are_summed_over_the_batch_not_averaged():
    found = train(line(), [BATCH], paddle.optimizer.Momentum(learning_rate=0.01), START)
    np.testing.assert_allclose(found, START - 0.01 * gradient(BATCH, START), rtol=1e-5)


def test_the_reported_cost_is_the_mean_per_sample():
    costs = []
    handler = lambda event: costs.append(event.cost) if isinstance(event, paddle.event.EndIteration) else None  # noqa: E731
    train(line(), [BATCH], paddle.optimizer.Momentum(learning_rate=0.0), START, handler=handler)
    np.testing.assert_allclose(costs, [np.mean([(np.dot(x, START) - y[0]) ** 2 for x, y in BATCH])], rtol=1e-5)


def test_momentum_has_rate_and_decay_inside_the_velocity():
    """With a rate that changes, the order matters: v = m v - lr (g + decay w)."""
    optimizer = paddle.optimizer.Momentum(
        momentum=0.9,
        learning_rate=0.02,
        regularization=paddle.optimizer.L2Regularization(0.1),
        learning_rate_schedule="discexp",
        learning_rate_decay_a=0.5,
        learning_rate_decay_b=6,
    )
    found = train(line(), [BATCH] * 4, optimizer, START)
    w, v = START.copy(), np.zeros(2)
    for rate in (0.02, 0.01, 0.01, 0.005):
        v = 0.9 * v - rate * (gradient(BATCH, w) + 0.1 * w)
        w = w + v
    np.testing.assert_allclose(found, w, rtol=1e-5)


@pytest.mark.parametrize(
    "kind, a, b, rate",
    [
        ("poly", 0.1, 0.5, lambda n: 0.02 * (1 + 0.1 * n) ** -0.5),
        ("exp", 0.5, 10.0, lambda n: 0.02 * 0.5 ** (n / 10)),
        ("linear", 0.001, 0.012, lambda n: max(0.02 - 0.001 * n, 0.012)),
        ("caffe_poly", 20.0, 2.0, lambda n: 0.02 * (1 - n / 20) ** 2),
    ],
)
def test_schedules_count_samples_not_steps(kind, a, b, rate):
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.02, learning_rate_schedule=kind, learning_rate_decay_a=a, learning_rate_decay_b=b
    )
    found = train(line(), [BATCH] * 3, optimizer, START)
    w = START.copy()
    for samples in (3, 6, 9):
        w = w - rate(samples) * gradient(BATCH, w)
    np.testing.assert_allclose(found, w, rtol=1e-5)


def test_manual_schedules_take_segments_of_samples():
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.01, learning_rate_schedule="manual", learning_rate_args="3:1.0,6:0.5,7:0.1"
    )
    w = START.copy()
    for factor in (1.0, 0.5, 0.1):
        w = w - 0.01 * factor * gradient(BATCH, w)
    np.testing.assert_allclose(train(line(), [BATCH] * 3, optimizer, START), w, rtol=1e-5)


def adagrad(w, g, s, t):
    s["a"] = s.get("a", 0) + g * g
    return w - 0.02 * g / np.sqrt(s["a"] + 1e-6)


def decayed(w, g, s, t):
    s["a"] = g * g if t == 1 else 0.95 * s["a"] + 0.05 * g * g
    return w - 0.02 * g / np.sqrt(s["a"] + 1e-6)


def rmsprop(w, g, s, t):
    s["a"] = g * g if t == 1 else 0.95 * s["a"] + 0.05 * g * g
    s["f"] = 0.95 * s.get("f", 0) + 0.05 * g
    return w - 0.02 * g / np.sqrt(s["a"] - s["f"] ** 2 + 1e-6)


def adadelta(w, g, s, t):
    s["a"] = 0.95 * s.get("a", 0) + 0.05 * g * g
    step = np.sqrt((s.get("d", 0) + 1e-6) / (s["a"] + 1e-6)) * g
    s["d"] = 0.95 * s.get("d", 0) + 0.05 * step**2
    return w - 0.02 * step


def adam(w, g, s, t):
    s["m"], s["v"] = 0.9 * s.get("m", 0) + 0.1 * g, 0.999 * s.get("v", 0) + 0.001 * g * g
    return w - 0.02 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * s["m"] / (np.sqrt(s["v"]) + 1e-8)


def adamax(w, g, s, t):
    s["m"], s["u"] = 0.9 * s.get("m", 0) + 0.1 * g, np.maximum(0.999 * s.get("u", 0), np.abs(g))
    return w - 0.02 / (1 - 0.9**t) * s["m"] / s["u"]


@pytest.mark.parametrize(
    "name, rule",
    [
        ("AdaGrad", adagrad),
        ("DecayedAdaGrad", decayed),
        ("RMSProp", rmsprop),
        ("AdaDelta", adadelta),
        ("Adam", adam),
        ("Adamax", adamax),
    ],
)
def test_optimizers_follow_2017s_formulas(name, rule):
    found = train(line(), [BATCH] * 7, getattr(paddle.optimizer, name)(learning_rate=0.02), START)
    w, state = START.copy(), {}
    for step in range(1, 8):
        w = rule(w, gradient(BATCH, w), state, step)
    np.testing.assert_allclose(found, w, rtol=2e-4)


def test_large_parameters_are_updated_like_small_ones():
    """They are updated in pieces."""
    source = np.random.default_rng(3)
    start = source.normal(0, 0.01, 40_000)
    batch = [(source.normal(size=40_000), [1.0]) for _ in range(2)]
    found = train(line(40_000), [batch] * 3, paddle.optimizer.Adam(learning_rate=0.02), start)
    w, state = start.copy(), {}
    for step in range(1, 4):
        w = adam(w, gradient(batch, w), state, step)
    np.testing.assert_allclose(found, w, atol=1e-4)


def test_adam_applies_l2():
    optimizer = paddle.optimizer.Adam(learning_rate=0.02, regularization=paddle.optimizer.L2Regularization(3.0))
    w, state = START.copy(), {}
    for step in range(1, 5):
        w = adam(w, gradient(BATCH, w) + 3.0 * w, state, step)
    np.testing.assert_allclose(train(line(), [BATCH] * 4, optimizer, START), w, rtol=1e-4)


def test_parameters_have_their_own_rate_decay_and_clipping():
    cost = line(learning_rate=2.0, l2_rate=0.5, gradient_clipping_threshold=1.5)
    found = train(cost, [BATCH], paddle.optimizer.Momentum(learning_rate=0.01), START)
    clipped = np.clip(gradient(BATCH, START), -1.5, 1.5)
    np.testing.assert_allclose(found, START - 0.02 * (clipped + 0.5 * START), rtol=1e-5)


def test_static_parameters_stay():
    assert np.allclose(train(line(is_static=True), [BATCH], paddle.optimizer.Momentum(learning_rate=1.0), START), START)


def test_pruning_keeps_the_smallest_values_at_zero():
    hook = paddle.attr.Hook("pruning", sparsity_ratio=0.5)
    optimizer = paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.5)
    w, velocity = np.array([START[0], 0.0]), np.zeros(2)
    for _ in range(3):
        velocity = 0.5 * velocity - 0.01 * gradient(BATCH, w) * [1, 0]
        w = w + velocity
    found = train(line(update_hooks=hook), [BATCH] * 3, optimizer, START)
    np.testing.assert_allclose(found, w, rtol=1e-5)
    with pytest.raises(ValueError, match="between 0 and 1, not 2"):
        paddle.attr.Hook("pruning", 2)


def test_dropout_scales_in_testing_and_not_in_training():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(2000))
    dropped = paddle.layer.dropout(x, 0.25)
    assert np.allclose(paddle.infer(dropped, paddle.parameters.create(dropped), [(np.ones(2000),)]), 0.75)
    from paddlecloud.legacy.machine import Machine

    machine = Machine([dropped], paddle.parameters.create(dropped))
    values, _ = machine.forward(machine.feeder()([(np.ones(2000),)]), is_training=True)
    found = values[id(dropped)].data.numpy()
    assert set(np.unique(found)) == {0.0, 1.0}
    assert abs(found.mean() - 0.75) < 0.06


def test_model_average_tests_with_the_mean_of_the_values():
    cost = line()
    parameters = paddle.parameters.create(cost)
    parameters["w"] = START.astype(np.float32).reshape(2, 1)
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.01, model_average=paddle.optimizer.ModelAverage(average_window=0.5, max_average_window=10)
    )
    trainer = paddle.trainer.SGD(cost, parameters, optimizer)
    trainer.train(lambda: iter([BATCH] * 4))
    w, seen = START.copy(), []
    for _ in range(4):
        w = w - 0.01 * gradient(BATCH, w)
        seen.append(w)
    mean = np.mean(seen, axis=0)
    expected = np.mean([(np.dot(x, mean) - y[0]) ** 2 for x, y in BATCH])
    np.testing.assert_allclose(trainer.test(lambda: iter([BATCH])).cost, expected, rtol=1e-4)
    np.testing.assert_allclose(parameters["w"].reshape(-1), w, rtol=1e-5)


def test_events_come_in_order_with_metrics():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(2))
    label = paddle.layer.data("label", paddle.data_type.integer_value(2))
    cost = paddle.layer.classification_cost(paddle.layer.fc(x, 2, act=paddle.activation.Softmax()), label)
    seen = []
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())
    trainer.train(lambda: iter([[([1.0, 0.0], 1)]]), 2, lambda event: seen.append(event))
    one_pass = ["BeginPass", "BeginIteration", "EndForwardBackward", "EndIteration", "EndPass"]
    assert [type(event).__name__ for event in seen] == one_pass * 2
    assert [event.pass_id for event in seen] == [0] * 5 + [1] * 5
    assert seen[3].metrics.keys() == {"classification_error_evaluator"} and seen[3].batch_id == 0


def test_auc_is_the_share_of_pairs_in_order():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(1))
    label = paddle.layer.data("label", paddle.data_type.integer_value(2))
    score = paddle.layer.fc(
        x, 1, act=paddle.activation.Sigmoid(), bias_attr=False, param_attr=paddle.attr.Param(name="w")
    )
    cost = paddle.layer.sum_cost(score)
    metric = paddle.evaluator.auc(score, label, name="auc")
    parameters = paddle.parameters.create(cost)
    parameters["w"] = np.ones((1, 1), np.float32)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(), extra_layers=[label, metric])
    samples = [([-2.0], 0), ([-1.0], 1), ([0.0], 0), ([1.0], 1), ([2.0], 1)]
    assert trainer.test(lambda: iter([samples])).metrics == {"auc": pytest.approx(5 / 6, abs=1e-4)}


def test_a_saved_and_reloaded_model_predicts_the_same():
    ids = paddle.layer.data("ids", paddle.data_type.integer_value_sequence(20))
    out = paddle.layer.fc(
        paddle.layer.pooling(paddle.networks.simple_lstm(paddle.layer.embedding(ids, 6), 5)),
        2,
        act=paddle.activation.Softmax(),
    )
    parameters = paddle.parameters.create(out)
    file = io.BytesIO()
    parameters.to_tar(file)
    file.seek(0)
    samples = [([1, 2, 3],), ([19],), ([4, 4],)]
    before = paddle.infer(out, parameters, samples)
    assert np.array_equal(before, paddle.infer(out, paddle.parameters.Parameters.from_tar(file), samples))


def test_a_trainer_without_test_batches_warns_and_continues(capfd):
    x, label = (paddle.layer.data(name, kind) for name, kind in (("x", paddle.data_type.dense_vector(2)), ("label", paddle.data_type.integer_value(2))))
    cost = paddle.layer.classification_cost(paddle.layer.fc(x, 2, act=paddle.activation.Softmax()), label)
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())
    result = trainer.test(lambda: iter([]))
    assert np.isnan([result.cost, *result.metrics.values()]).all() and len(result.metrics) == 1
    assert re.search(r"\[WARNING .* test_v2_training.py:\d+\] the reader given to `test` has no batches", capfd.readouterr().err)


def test_a_local_training_without_batches_fails_with_the_programs_line():
    with pytest.raises(RuntimeError, match=r"^test_v2_training.py:\d+: the reader given to `train` has no batches: there is nothing to train on$"):
        train(line(), [], paddle.optimizer.Momentum(), START)


def test_a_reader_that_yields_in_the_first_pass_only_is_warned_about(capfd):
    once = iter([BATCH])
    cost = line()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(), is_local=True)
    trainer.train(lambda: once, 2)
    assert re.search(r"\[WARNING .* test_v2_training.py:\d+\] the reader given to `train` has no batches in pass 1", capfd.readouterr().err)


def test_feeding_says_which_part_of_a_sample_belongs_where():
    cost = line()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())
    swapped = [(y, x) for x, y in BATCH]
    assert (
        trainer.test(lambda: iter([swapped]), feeding={"x": 1, "y": 0}).cost == trainer.test(lambda: iter([BATCH])).cost
    )
    assert trainer.test(lambda: iter([swapped]), feeding=["y", "x"]).cost == trainer.test(lambda: iter([BATCH])).cost


@pytest.mark.parametrize(
    "sample, message",
    [
        (([1.0, 2.0, 3.0], [0.0]), r"`x` \(test_v2_training.py:\d+\): item 0 must have 2 numbers, not 3"),
        (([1.0, 2.0],), "sample 0 of the batch has no part 1 for data layer `y`"),
    ],
)
def test_wrong_samples_are_explained(sample, message):
    cost = line()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())
    with pytest.raises(ValueError, match=message):
        trainer.train(lambda: iter([[sample]]))


def test_an_id_out_of_range_is_explained():
    ids = paddle.layer.data("word", paddle.data_type.integer_value(5))
    out = paddle.layer.embedding(ids, 2)
    parameters = paddle.parameters.create(out)
    with pytest.raises(ValueError, match=r"`word` .*: id 5 of item 1 must be at least 0 and below 5$"):
        paddle.infer(out, parameters, [(4,), (5,)], feeding={"word": 0})


def test_a_wrong_sample_without_feeding_is_explained_with_the_order_of_data_layers():
    word, verb = (paddle.layer.data(name, paddle.data_type.integer_value(size)) for name, size in (("word", 9), ("verb", 2)))
    out = paddle.layer.concat([paddle.layer.embedding(verb, 2), paddle.layer.embedding(word, 2)])
    order = "without `feeding`, the parts of a sample are word, verb, the order of the program's data layers"
    with pytest.raises(ValueError, match=rf"`verb` .*: id 7 of item 0 must be at least 0 and below 2; {order}$"):
        paddle.infer(out, paddle.parameters.create(out), [(1, 7)])


def test_parameters_of_another_network_are_refused():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(3))
    with pytest.raises(ValueError, match=r"^test_v2_training.py:\d+: layer `two`: there is no parameter `_two.w0`; there are _one.w0"):
        paddle.infer(
            paddle.layer.fc(x, 1, name="two"),
            paddle.parameters.create(paddle.layer.fc(x, 1, name="one")),
            [([1, 2, 3],)],
        )
    with pytest.raises(ValueError, match=r"^test_v2_training.py:\d+: layer `one`: parameter `_one.w0` has shape \(3, 1\), but this network needs \(3, 4\)"):
        paddle.infer(
            paddle.layer.fc(x, 4, name="one"),
            paddle.parameters.create(paddle.layer.fc(x, 1, name="one")),
            [([1, 2, 3],)],
        )
