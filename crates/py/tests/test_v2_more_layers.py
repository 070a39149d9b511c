"""The layers and costs that `test_v2_layers` leaves out, against numpy: values, and gradients by finite differences."""

import numpy as np
import pytest

pytest.importorskip("paddle.nn")

from test_v2_layers import LENGTHS, check, compute, data_sequence, sequences

import paddle.v2 as paddle

ROWS = 6


@pytest.fixture
def source():
    return np.random.default_rng(11)


@pytest.fixture
def hidden(source):
    """A trained layer of size 3 on rows of 4, its formula, and the rows."""
    rows = source.normal(size=(ROWS, 4)).astype(np.float32)
    x = paddle.layer.data("x", paddle.data_type.dense_vector(4))
    layer = paddle.layer.fc(x, 3, act=paddle.activation.Linear(), name="h")
    return layer, lambda p: rows @ p["_h.w0"] + p["_h.wbias"], rows


def given(name, size):
    return paddle.layer.data(name, paddle.data_type.dense_vector(size))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    "act, formula",
    [
        ("Tanh", np.tanh),
        ("Sigmoid", sigmoid),
        ("Relu", lambda x: np.maximum(x, 0)),
        ("BRelu", lambda x: np.clip(x, 0, 24)),
        ("SoftRelu", lambda x: np.log1p(np.exp(np.clip(x, -40, 40)))),
        ("STanh", lambda x: 1.7159 * np.tanh(x * 2 / 3)),
        ("Abs", np.abs),
        ("Square", np.square),
        ("Exp", np.exp),
        ("SoftSign", lambda x: x / (1 + np.abs(x))),
    ],
)
def test_activations(source, act, formula):
    rows = source.normal(size=(ROWS, 4)).astype(np.float32)
    layer = paddle.layer.fc(given("x", 4), 3, act=getattr(paddle.activation, act)(), name="a")
    check(layer, [(row,) for row in rows], source, lambda p: formula(rows @ p["_a.w0"] + p["_a.wbias"]))


def test_arithmetic_on_rows(source, hidden):
    layer, value, rows = hidden
    weights = source.uniform(0.2, 0.8, (ROWS, 1)).astype(np.float32)
    others = source.normal(size=(ROWS, 3)).astype(np.float32)
    weight, other = given("weight", 1), given("other", 3)
    samples = list(zip(rows, weights, others))
    for made, formula in (
        (paddle.layer.scaling(layer, weight), lambda p: value(p) * weights),
        (paddle.layer.interpolation([layer, other], weight), lambda p: weights * value(p) + (1 - weights) * others),
        (paddle.layer.dot_prod(layer, other), lambda p: (value(p) * others).sum(1, keepdims=True)),
        (paddle.layer.slope_intercept(layer, slope=-2.0, intercept=0.5), lambda p: 0.5 - 2 * value(p)),
        (paddle.layer.addto([layer, other], act=paddle.activation.Tanh()), lambda p: np.tanh(value(p) + others)),
        (paddle.layer.clip(layer, min=-0.4, max=0.6), lambda p: np.clip(value(p), -0.4, 0.6)),
        (paddle.layer.row_l2_norm(layer), lambda p: value(p) / np.sqrt((value(p) ** 2).sum(1, keepdims=True))),
        (2.0 * layer - other + 1.0, lambda p: 2 * value(p) - others + 1),
    ):
        needed = {node.name for node in paddle.topology.Topology(made)._nodes if node.kind == "data"}
        kept = [tuple(part for part, name in zip(sample, ("x", "weight", "other")) if name in needed) for sample in samples]
        check(made, kept, source, formula)


def test_powers_and_shares(source):
    rows = source.uniform(0.5, 2, (ROWS, 4)).astype(np.float32)
    exponents = source.uniform(0.5, 2, (ROWS, 1)).astype(np.float32)
    layer = paddle.layer.fc(given("x", 4), 3, act=paddle.activation.Exp(), name="e", bias_attr=False)

    def value(p):
        return np.exp(rows @ p["_e.w0"])

    check(paddle.layer.sum_to_one_norm(layer), [(row,) for row in rows], source, lambda p: value(p) / value(p).sum(1, keepdims=True))
    power = paddle.layer.power(layer, given("exponent", 1))
    check(power, list(zip(rows, exponents)), source, lambda p: value(p) ** exponents)


def test_projections_are_added_and_joined(source):
    rows, others = source.normal(size=(ROWS, 4)).astype(np.float32), source.normal(size=(ROWS, 4)).astype(np.float32)
    x, y = given("x", 4), given("y", 4)
    parts = [
        paddle.layer.dotmul_projection(x),
        paddle.layer.scaling_projection(y),
        paddle.layer.identity_projection(x),
        paddle.layer.trans_full_matrix_projection(y),
        paddle.layer.dotmul_operator(x, y, scale=0.5),
    ]
    layer = paddle.layer.mixed(4, "m", parts, act=paddle.activation.Tanh(), bias_attr=True)

    def formula(p):
        total = rows * p["_m.w0"] + others * p["_m.w1"] + rows + others @ p["_m.w3"].T + 0.5 * rows * others
        return np.tanh(total + p["_m.wbias"])

    check(layer, list(zip(rows, others)), source, formula)
    cut = paddle.layer.mixed(2, "c", [paddle.layer.full_matrix_projection(paddle.layer.mixed(2, "s", [paddle.layer.identity_projection(x, offset=1, size=2)]))])
    check(cut, [(row,) for row in rows], source, lambda p: rows[:, 1:3] @ p["_c.w0"])


COSTS = {
    "rank": lambda o, t: np.log1p(np.exp(o)) - t * o,
    "smooth_l1": lambda o, t: np.where(np.abs(o - t) < 1, (o - t) ** 2 / 2, np.abs(o - t) - 0.5).sum(1, keepdims=True),
    "binary": lambda o, t: -(t * np.log(o) + (1 - t) * np.log(1 - o)).sum(1, keepdims=True),
}


def test_costs_of_regression(source, hidden):
    layer, value, rows = hidden
    wanted = (2 * source.normal(size=(ROWS, 3))).astype(np.float32)
    check(paddle.layer.smooth_l1_cost(layer, given("wanted", 3)), list(zip(rows, wanted)), source, lambda p: COSTS["smooth_l1"](value(p), wanted))
    check(paddle.layer.sum_cost(layer), [(row,) for row in rows], source, lambda p: value(p).sum(1, keepdims=True))
    weights = source.uniform(0, 2, (ROWS, 1)).astype(np.float32)
    weighted = paddle.layer.square_error_cost(layer, given("wanted", 3), weight=given("weight", 1), coeff=0.5)
    names = [node.name for node in paddle.topology.Topology(weighted)._nodes if node.kind == "data"]
    parts = {"x": rows, "wanted": wanted, "weight": weights}
    check(weighted, list(zip(*(parts[name] for name in names))), source,
          lambda p: 0.5 * weights * ((value(p) - wanted) ** 2).sum(1, keepdims=True))  # fmt: skip


def test_costs_of_classes(source):
    rows = source.normal(size=(ROWS, 4)).astype(np.float32)
    labels = source.integers(0, 3, ROWS)
    x, label = given("x", 4), paddle.layer.data("label", paddle.data_type.integer_value(3))
    samples = list(zip(rows, labels.tolist()))
    positive = paddle.layer.fc(x, 3, act=paddle.activation.Exp(), name="z")

    def selfnorm(p):
        z = np.exp(rows @ p["_z.w0"] + p["_z.wbias"])
        log_total = np.log(z.sum(1))
        return (-np.log(z[np.arange(ROWS), labels]) + log_total + 0.2 * log_total**2)[:, None]

    cost = paddle.layer.cross_entropy_with_selfnorm_cost(positive, label, softmax_selfnorm_alpha=0.2)
    check(cost, samples, source, selfnorm)

    chance = paddle.layer.fc(x, 3, act=paddle.activation.Sigmoid(), name="s")
    several = paddle.layer.data("several", paddle.data_type.sparse_binary_vector(3))
    chosen = [[0, 2], [], [1], [0, 1, 2], [2], [1, 2]]
    wanted = np.array([[float(number in each) for number in range(3)] for each in chosen])
    check(paddle.layer.multi_binary_label_cross_entropy_cost(chance, several), list(zip(rows, chosen)), source,
          lambda p: COSTS["binary"](sigmoid(rows @ p["_s.w0"] + p["_s.wbias"]), wanted))  # fmt: skip

    score = paddle.layer.fc(x, 1, act=paddle.activation.Linear(), name="v")
    side = paddle.layer.data("side", paddle.data_type.integer_value(2))
    sides = source.integers(0, 2, ROWS)

    def huber(p):
        margin = (3 * rows @ p["_v.w0"] / 3 + p["_v.wbias"]) * (2 * sides - 1)[:, None]
        return np.where(margin < -1, -4 * margin, np.where(margin < 1, (1 - margin) ** 2, 0))

    check(paddle.layer.huber_classification_cost(score, side), list(zip(rows, sides.tolist())), source, huber)


def test_rank_cost(source):
    left, right = source.normal(size=(2, ROWS, 4)).astype(np.float32)
    orders = source.integers(0, 2, ROWS).astype(np.float32)[:, None]
    shared = paddle.attr.Param(name="w")
    scores = [
        paddle.layer.fc(given(name, 4), 1, act=paddle.activation.Linear(), bias_attr=False, param_attr=shared) for name in ("left", "right")
    ]
    cost = paddle.layer.rank_cost(*scores, given("order", 1))
    check(cost, list(zip(left, right, orders)), source, lambda p: COSTS["rank"](left @ p["w"] - right @ p["w"], orders))


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_layer(source, reverse):
    xs = sequences(source, 3)
    turn = slice(None, None, -1) if reverse else slice(None)

    def formula(p):
        found = []
        for x in xs:
            h, steps = np.zeros(3), []
            for row in x[turn]:
                h = np.tanh(row + h @ p["_r.w0"] + p["_r.wbias"][0])
                steps.append(h)
            found.append(np.array(steps)[turn])
        return np.concatenate(found)

    check(paddle.layer.recurrent(data_sequence(3), name="r", reverse=reverse), [(x,) for x in xs], source, formula)


def test_an_lstm_without_a_bias_has_no_peepholes(source):
    import v2_numpy as reference

    xs = sequences(source, 8)
    layer = paddle.layer.lstmemory(data_sequence(8), name="l", bias_attr=False)
    check(layer, [(x,) for x in xs], source, lambda p: np.concatenate([reference.lstm(x, p["_l.w0"], np.zeros(14)) for x in xs]))


def test_sequences_are_joined_reshaped_and_expanded(source):
    xs = sequences(source, 2)
    ys = [source.normal(size=(length, 2)).astype(np.float32) for length in (1, 4, 2, 3)]
    x = data_sequence(2)
    trained = paddle.layer.fc(x, 2, act=paddle.activation.Linear(), name="t")

    def moved(p, x):
        return x @ p["_t.w0"] + p["_t.wbias"]

    joined = paddle.layer.seq_concat(trained, data_sequence(2, "y"))
    check(joined, list(zip(xs, ys)), source, lambda p: np.concatenate([each for a, b in zip(xs, ys) for each in (moved(p, a), b)]))
    reshaped = paddle.layer.seq_reshape(trained, 1)
    check(reshaped, [(x,) for x in xs], source, lambda p: np.concatenate([moved(p, x).reshape(-1, 1) for x in xs]))
    last = paddle.layer.expand(paddle.layer.last_seq(trained), x)
    check(last, [(x,) for x in xs], source, lambda p: np.concatenate([np.repeat(moved(p, x)[-1:], len(x), 0) for x in xs]))


def test_normalization_across_channels(source):
    images = source.normal(size=(2, 4, 3, 3)).astype(np.float32)
    image = paddle.layer.data("image", paddle.data_type.dense_vector(36), height=3, width=3)
    seen = paddle.layer.img_conv(image, filter_size=1, num_filters=4, name="n", act=paddle.activation.Linear())
    layer = paddle.layer.img_cmrnorm(seen, size=3, scale=0.3, power=0.75)

    def formula(p):
        rows = []
        for each in images:
            x = np.einsum("oc,chw->ohw", p["_n.w0"].reshape(4, 4), each) + p["_n.wbias"].reshape(4, 1, 1)
            squares = np.pad(x * x, ((1, 1), (0, 0), (0, 0)))
            total = sum(squares[shift : shift + 4] for shift in range(3))
            rows.append((x * (1 + 0.1 * total) ** -0.75).reshape(-1))
        return np.array(rows)

    check(layer, [(each.reshape(-1),) for each in images], source, formula)


def test_grouped_convolution_with_strides(source):
    images = source.normal(size=(2, 4, 7, 5)).astype(np.float32)
    image = paddle.layer.data("image", paddle.data_type.dense_vector(140), height=7, width=5)
    layer = paddle.layer.img_conv(
        image, filter_size=3, num_filters=6, groups=2, stride=2, padding=1, name="g", act=paddle.activation.Tanh(), shared_biases=True
    )

    def formula(p):
        import v2_numpy as reference

        filters, offsets = p["_g.w0"].reshape(6, 2, 3, 3), p["_g.wbias"].reshape(-1)
        rows = []
        for each in images:
            parts = [reference.conv(each[2 * g : 2 * g + 2], filters[3 * g : 3 * g + 3], offsets[3 * g : 3 * g + 3], 1) for g in range(2)]
            rows.append(np.tanh(np.concatenate(parts)[:, ::2, ::2]).reshape(-1))
        return np.array(rows)

    check(layer, [(each.reshape(-1),) for each in images], source, formula)


def test_means_of_padded_windows_leave_the_padding_out(source):
    images = source.normal(size=(2, 1, 5, 5)).astype(np.float32)
    image = paddle.layer.data("image", paddle.data_type.dense_vector(25), height=5, width=5)
    pooled = paddle.layer.img_pool(image, 3, stride=2, padding=1, pool_type=paddle.pooling.Avg())
    found = paddle.infer(pooled, paddle.parameters.create(pooled), [(each.reshape(-1),) for each in images])
    for each, row in zip(images[:, 0], found):
        expected = [
            each[max(2 * r - 1, 0) : 2 * r + 2, max(2 * c - 1, 0) : 2 * c + 2].mean() for r in range(3) for c in range(3)
        ]
        np.testing.assert_allclose(row, expected, rtol=1e-5)


def test_nothing_depends_on_the_other_sequences_of_a_batch(source):
    """Lengths from 1 to 40, one by one and together."""
    xs = [source.normal(size=(length, 12)).astype(np.float32) for length in (1, 40, 2, 17, *LENGTHS)]
    x = data_sequence(12)
    lstm = paddle.layer.lstmemory(x, name="one")
    gru = paddle.layer.grumemory(x, name="two", reverse=True)
    out = paddle.layer.concat([paddle.layer.pooling(lstm), paddle.layer.first_seq(gru)])
    parameters = paddle.parameters.create(out)
    together = paddle.infer(out, parameters, [(x,) for x in xs])
    alone = np.concatenate([paddle.infer(out, parameters, [(x,)]) for x in xs])
    np.testing.assert_allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("kind", ["lstmemory", "grumemory", "recurrent"])
@pytest.mark.parametrize("acts", [("tanh", "sigmoid", "tanh"), ("relu", "sigmoid", "linear"), ("linear", "tanh", "sigmoid")])
def test_recurrent_layers_along_sequences_equal_those_step_by_step(source, monkeypatch, kind, acts):
    from paddlecloud.legacy.kernels import scans

    named = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "linear": "Linear"}
    act, gate_act, state_act = (getattr(paddle.activation, named[name])() for name in acts)
    options = {"act": act, "reverse": True}
    if kind != "recurrent":
        options["gate_act"] = gate_act
    if kind == "lstmemory":
        options["state_act"] = state_act
    width = {"lstmemory": 4, "grumemory": 3, "recurrent": 1}[kind] * 3
    below = paddle.layer.fc(data_sequence(5), width, act=paddle.activation.Linear(), name="below")
    layer = getattr(paddle.layer, kind)(below, name="top", **options)
    parameters = paddle.parameters.create(layer)
    for name in parameters.names():
        parameters[name] = (source.normal(size=parameters.get_shape(name)) * 0.3).astype(np.float32)
    samples = [(x,) for x in sequences(source, 5)]
    weights = source.normal(size=(sum(len(x) for (x,) in samples), layer.size)).astype(np.float32)
    at_once = compute(layer, samples, parameters, weights)
    monkeypatch.setattr(scans, "knows", lambda names: False)
    by_step = compute(layer, samples, parameters, weights)
    np.testing.assert_allclose(at_once[0], by_step[0], rtol=1e-4, atol=1e-5)
    assert set(at_once[1]) == set(by_step[1]) == set(parameters.names())
    for name, gradient in by_step[1].items():
        np.testing.assert_allclose(at_once[1][name], gradient, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_layer_on_top_of_a_groups_steps_equals_one_on_top_of_the_group(source, reverse):
    def state(x, size=4):
        before = paddle.layer.memory(name="state", size=size)
        return paddle.layer.fc([x, before], size, name="state", bias_attr=False)

    def word(of, **name):
        weight, offset = paddle.attr.Param(name="w"), paddle.attr.Param(name="b")
        return paddle.layer.fc(of, 6, act=paddle.activation.Softmax(), param_attr=weight, bias_attr=offset, **name)

    samples = [(x,) for x in sequences(source, 3)]
    weights = source.normal(size=(sum(LENGTHS), 6)).astype(np.float32)
    inside = paddle.layer.recurrent_group(lambda x: word(state(x)), data_sequence(3), name="group", reverse=reverse)
    outside = word(paddle.layer.recurrent_group(state, data_sequence(3), name="group", reverse=reverse))
    parameters = paddle.parameters.create(inside)
    for name in parameters.names():
        parameters[name] = source.normal(size=parameters.get_shape(name)).astype(np.float32)
    one, other = (compute(layer, samples, parameters, weights) for layer in (inside, outside))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-5, atol=1e-6)
    for name in parameters.names():
        np.testing.assert_allclose(one[1][name], other[1][name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_layer_of_a_group_that_reads_a_memory_is_computed_in_each_step(source):
    """It gets what the step before left, also where it treats every row alike."""

    def step(x):
        before = paddle.layer.memory(name="state", size=2)
        paddle.layer.addto([x, before], name="state")
        return paddle.layer.addto([before], name="out")

    samples = [(x,) for x in sequences(source, 2)]
    group = paddle.layer.recurrent_group(step, data_sequence(2), name="group")
    found = paddle.infer(output_layer=group, parameters=paddle.parameters.create(group), input=samples)
    expected = [np.concatenate([np.zeros((1, 2)), np.cumsum(x, axis=0)[:-1]]) for (x,) in samples]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-5, atol=1e-5)
