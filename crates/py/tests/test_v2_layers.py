"""Layers of `paddle.v2` against numpy: values, and gradients by finite differences of the numpy formula."""

import numpy as np
import pytest

pytest.importorskip("paddle.nn")

import v2_numpy as reference

import paddle.v2 as paddle
from paddlecloud.legacy.machine import Machine

LENGTHS = [3, 1, 7, 2]


@pytest.fixture
def source():
    return np.random.default_rng(7)


def compute(output, samples, parameters, weights=None):
    """Values of `output`, and gradients of its sum (weighted by `weights`) in all parameters."""
    machine = Machine([output], parameters)
    values, _ = machine.forward(machine.feeder()(samples), is_training=True)
    value = values[id(output)].data
    import paddle as real

    total = value.sum() if weights is None else (value * real.to_tensor(weights)).sum()
    for tensor in machine.tensors.values():
        tensor.clear_gradient(False)
    total.backward()
    return value.numpy(), {name: machine.parameters.tensor(name).grad.numpy() for name in parameters.names()}


def check(output, samples, source, formula):
    """`formula(parameters by name)` gives what `output` should be, in float64."""
    parameters = paddle.parameters.create(output)
    for name in parameters.names():
        parameters[name] = source.normal(0, 0.5, parameters.get_shape(name)).astype(np.float32)
    at = {name: parameters[name].astype(np.float64) for name in parameters.names()}
    expected = formula(at)
    weights = source.normal(size=expected.shape).astype(np.float32)
    found, gradients = compute(output, samples, parameters, weights)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    for name, value in at.items():
        picked = source.choice(value.size, min(value.size, 12), replace=False)
        for place in picked:
            moved = []
            for step in (1e-5, -1e-5):
                flat = value.reshape(-1).copy()
                flat[place] += step
                moved.append((formula({**at, name: flat.reshape(value.shape)}) * weights).sum())
            slope = (moved[0] - moved[1]) / 2e-5
            np.testing.assert_allclose(
                gradients[name].reshape(-1)[place], slope, rtol=2e-3, atol=2e-3, err_msg=f"{name}[{place}]"
            )


def sequences(source, size):
    return [source.normal(size=(length, size)).astype(np.float32) for length in LENGTHS]


def data_sequence(size, name="x"):
    return paddle.layer.data(name, paddle.data_type.dense_vector_sequence(size))


@pytest.mark.parametrize("reverse", [False, True])
def test_lstm(source, reverse):
    xs = sequences(source, 12)
    layer = paddle.layer.lstmemory(data_sequence(12), name="lstm", reverse=reverse)
    turn = slice(None, None, -1) if reverse else slice(None)
    check(
        layer,
        [(x,) for x in xs],
        source,
        lambda p: np.concatenate([reference.lstm(x[turn], p["_lstm.w0"], p["_lstm.wbias"])[turn] for x in xs]),
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_gru(source, reverse):
    xs = sequences(source, 9)
    layer = paddle.layer.grumemory(data_sequence(9), name="gru", reverse=reverse)
    turn = slice(None, None, -1) if reverse else slice(None)
    check(
        layer,
        [(x,) for x in xs],
        source,
        lambda p: np.concatenate([reference.gru(x[turn], p["_gru.w0"], p["_gru.wbias"])[turn] for x in xs]),
    )


def test_a_recurrent_group_of_gru_steps_is_a_gru(source):
    xs = sequences(source, 9)

    def step(x):
        before = paddle.layer.memory("state", 3)
        return paddle.layer.gru_step(x, before, name="state")

    layer = paddle.layer.recurrent_group(step, data_sequence(9), name="group")
    check(
        layer,
        [(x,) for x in xs],
        source,
        lambda p: np.concatenate([reference.gru(x, p["_state@group.w0"], p["_state@group.wbias"]) for x in xs]),
    )


def test_crf(source):
    xs = sequences(source, 3)
    tags = [source.integers(0, 3, length).tolist() for length in LENGTHS]
    label = paddle.layer.data("tags", paddle.data_type.integer_value_sequence(3))
    x = data_sequence(3)
    layer = paddle.layer.crf(x, label, name="crf")
    samples = list(zip(tags, xs)) if label.order < x.order else list(zip(xs, tags))
    check(
        layer, samples, source, lambda p: np.array([[reference.crf_cost(x, t, p["_crf.w0"])] for x, t in zip(xs, tags)])
    )


def test_crf_decoding_finds_the_likeliest_tags(source):
    import itertools

    xs = sequences(source, 3)
    layer = paddle.layer.crf_decoding(data_sequence(3), 3, name="decode")
    parameters = paddle.parameters.create(layer)
    parameters["_decode.w0"] = source.normal(size=(5, 3)).astype(np.float32)
    found = paddle.infer(layer, parameters, [(x,) for x in xs], field="id")
    best = []
    for x in xs:
        paths = list(itertools.product(range(3), repeat=len(x)))
        best += min(paths, key=lambda path: reference.crf_cost(x, path, parameters["_decode.w0"]))
    assert found.tolist() == best


def test_embedding_sequence_pooling_and_softmax(source):
    ids = [source.integers(0, 11, length).tolist() for length in LENGTHS]
    word = paddle.layer.embedding(paddle.layer.data("ids", paddle.data_type.integer_value_sequence(11)), 5, name="word")
    pools = [paddle.pooling.Sum(), paddle.pooling.Avg(), paddle.pooling.SquareRootN(), paddle.pooling.Max()]
    parts = [paddle.layer.pooling(word, pool) for pool in pools]
    joined = paddle.layer.concat([*parts, paddle.layer.first_seq(word), paddle.layer.last_seq(word)])
    out = paddle.layer.fc(joined, 4, act=paddle.activation.Softmax(), name="out")

    def formula(p):
        rows = []
        for each in ids:
            x = p["_word.w0"][each]
            parts = [x.sum(0), x.mean(0), x.sum(0) / np.sqrt(len(x)), x.max(0), x[0], x[-1]]
            rows.append(reference.softmax(np.concatenate(parts) @ p["_out.w0"] + p["_out.wbias"][0]))
        return np.array(rows)

    check(out, [(each,) for each in ids], source, formula)


def test_context_projection_is_zero_beyond_the_ends(source):
    xs = sequences(source, 2)
    layer = paddle.networks.sequence_conv_pool(data_sequence(2), context_len=3, hidden_size=4, name="conv")

    def formula(p):
        rows = []
        for x in xs:
            padded = np.concatenate([np.zeros((1, 2)), x, np.zeros((1, 2))])
            windows = np.array([padded[t : t + 3].reshape(-1) for t in range(len(x))])
            rows.append(np.tanh(windows @ p["_conv_conv_fc.w0"] + p["_conv_conv_fc.wbias"]).max(0))
        return np.array(rows)

    check(layer, [(x,) for x in xs], source, formula)


def test_convolution_and_pooling(source):
    images = source.normal(size=(3, 2, 6, 7)).astype(np.float32)
    image = paddle.layer.data("image", paddle.data_type.dense_vector(84), height=6, width=7)
    conv = paddle.layer.img_conv(
        image, filter_size=3, num_filters=4, padding=1, name="conv", act=paddle.activation.Tanh()
    )
    layer = paddle.layer.concat(
        [
            paddle.layer.img_pool(conv, 3, stride=2, pool_type=kind)
            for kind in (paddle.pooling.Max(), paddle.pooling.Avg())
        ]
    )

    def formula(p):
        rows = []
        for each in images:
            seen = np.tanh(reference.conv(each, p["_conv.w0"].reshape(4, 2, 3, 3), p["_conv.wbias"].reshape(-1), 1))
            rows.append(
                np.concatenate(
                    [
                        np.array([reference.pool_up(x, 3, 2, best) for x in seen]).reshape(-1)
                        for best in (np.max, np.mean)
                    ]
                )
            )
        return np.array(rows)

    check(layer, [(each.reshape(-1),) for each in images], source, formula)


def test_batch_norm_trains_on_the_batch_and_tests_on_running_means(source):
    rows = source.normal(2, 3, (16, 4)).astype(np.float32)
    x = paddle.layer.data("x", paddle.data_type.dense_vector(4))
    layer = paddle.layer.batch_norm(x, act=paddle.activation.Linear(), name="bn")
    parameters = paddle.parameters.create(layer)
    assert (parameters["_bn.w0"] == 1).all()
    machine = Machine([layer], parameters)
    values, run = machine.forward(machine.feeder()([(row,) for row in rows]), is_training=True)
    expected = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)
    np.testing.assert_allclose(values[id(layer)].data.numpy(), expected, rtol=1e-4, atol=1e-4)
    machine.update_running(run)
    np.testing.assert_allclose(parameters["_bn.w1"][0], 0.1 * rows.mean(0), rtol=1e-4)
    np.testing.assert_allclose(parameters["_bn.w2"][0], 0.1 * rows.var(0), rtol=1e-4)
    tested = paddle.infer(layer, parameters, [(row,) for row in rows])
    np.testing.assert_allclose(
        tested, (rows - 0.1 * rows.mean(0)) / np.sqrt(0.1 * rows.var(0) + 1e-5), rtol=1e-3, atol=1e-3
    )


def test_sparse_inputs_are_like_dense_ones(source):
    dense = np.where(source.random((5, 30)) < 0.2, source.normal(size=(5, 30)), 0).astype(np.float32)
    dense[2] = 0
    rows = [[(int(i), float(row[i])) for i in np.flatnonzero(row)] for row in dense]
    x = paddle.layer.data("x", paddle.data_type.sparse_float_vector(30))
    check(
        paddle.layer.fc(x, 3, name="fc"),
        [(row,) for row in rows],
        source,
        lambda p: np.tanh(dense @ p["_fc.w0"] + p["_fc.wbias"]),
    )
    ones = (dense != 0).astype(np.float32)
    y = paddle.layer.data("y", paddle.data_type.sparse_binary_vector(30))
    picked = [np.flatnonzero(row).tolist() for row in dense]
    check(
        paddle.layer.fc(y, 3, name="fd"),
        [(row,) for row in picked],
        source,
        lambda p: np.tanh(ones @ p["_fd.w0"] + p["_fd.wbias"]),
    )


def test_cos_sim_and_costs(source):
    a, b = source.normal(size=(2, 6, 3)).astype(np.float32)
    left = paddle.layer.data("left", paddle.data_type.dense_vector(3))
    right = paddle.layer.data("right", paddle.data_type.dense_vector(3))
    hidden = paddle.layer.fc(left, 3, act=paddle.activation.Linear(), name="h")
    samples = list(zip(a, b))

    def moved(p):
        return a @ p["_h.w0"] + p["_h.wbias"]

    def cosine(p):
        x = moved(p)
        return (
            5 * (x * b).sum(1, keepdims=True) / np.sqrt((x * x).sum(1, keepdims=True) * (b * b).sum(1, keepdims=True))
        )

    check(paddle.layer.cos_sim(hidden, right, scale=5), samples, source, cosine)
    check(
        paddle.layer.square_error_cost(hidden, right),
        samples,
        source,
        lambda p: ((moved(p) - b) ** 2).sum(1, keepdims=True),
    )

    def huber(p):
        off = np.abs(moved(p) - b)
        return np.where(off <= 0.7, off**2 / 2, 0.7 * (off - 0.35)).sum(1, keepdims=True)

    check(paddle.layer.huber_regression_cost(hidden, right, delta=0.7), samples, source, huber)


def test_classification_cost_is_the_cross_entropy_of_the_softmax(source):
    rows, labels = source.normal(size=(6, 3)).astype(np.float32), source.integers(0, 4, 6).tolist()
    x = paddle.layer.data("x", paddle.data_type.dense_vector(3))
    out = paddle.layer.fc(x, 4, act=paddle.activation.Softmax(), name="out")
    label = paddle.layer.data("label", paddle.data_type.integer_value(4))

    def formula(p):
        chances = reference.softmax(rows @ p["_out.w0"] + p["_out.wbias"])
        return -np.log(chances[np.arange(6), labels])[:, None]

    check(paddle.layer.classification_cost(out, label), list(zip(rows, labels)), source, formula)


def test_attention_weights_positions(source):
    xs, states = sequences(source, 3), source.normal(size=(len(LENGTHS), 2)).astype(np.float32)
    encoded = data_sequence(3)
    state = paddle.layer.data("state", paddle.data_type.dense_vector(2))
    layer = paddle.networks.simple_attention(encoded, encoded, state, name="attention")

    def formula(p):
        rows = []
        for x, s in zip(xs, states):
            fit = np.tanh(x + s @ p["_attention_transform.w0"]) @ p["_attention_softmax.w0"]
            rows.append((reference.softmax(fit[:, 0])[:, None] * x).sum(0))
        return np.array(rows)

    check(layer, list(zip(xs, states)), source, formula)
