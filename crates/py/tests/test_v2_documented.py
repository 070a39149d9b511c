"""Layers, costs and optimizers of `paddle.v2` against numpy programs by an author who wrote none of them.

Layers and costs follow 2017's documentation. Optimizers, and means of windows at an edge, follow what PaddlePaddle 0.11 computed, which its
documentation leaves open or states differently (RMSProp). Everything goes through the public API: values come from `paddle.infer`, and a gradient is what one batch
of plain descent at rate 1 takes away from a parameter. A formula sees one sample at a time, so nothing in a batch can depend on its neighbours.
"""

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("paddle.nn")

import paddle.v2 as paddle

LENGTHS = (1, 2, 7)
layer, act, kinds = paddle.layer, paddle.activation, paddle.data_type


@pytest.fixture
def draw():
    return np.random.default_rng(20170524)


def randomized(outputs, draw):
    """Parameters that are far from their initial values, and the same in double precision."""
    parameters = paddle.parameters.create(outputs)
    for name in parameters.names():
        parameters.set(name, draw.uniform(-0.9, 0.9, parameters.get_shape(name)).astype(np.float32))
    return parameters, {name: parameters.get(name).astype(np.float64) for name in parameters.names()}


def descent(cost, parameters, samples, feeding):
    """What one batch subtracts from every parameter at rate 1: the gradient, summed over the samples."""
    before = {name: parameters.get(name).astype(np.float64) for name in parameters.names()}
    plain = paddle.optimizer.Momentum(momentum=0.0, learning_rate=1.0)
    trainer = paddle.trainer.SGD(cost, parameters, plain, is_local=True)
    trainer.train(lambda: iter([samples]), feeding=feeding)
    return {name: before[name] - parameters.get(name) for name in before}


def slopes(function, at, name):
    """The derivatives of a function of all parameters in those of one, by central differences."""
    found = np.zeros(at[name].size)
    for place in range(found.size):
        around = []
        for step in (1e-6, -1e-6):
            moved = at[name].copy()
            moved.flat[place] += step
            around.append(function({**at, name: moved}))
        found[place] = (around[0] - around[1]) / 2e-6
    return found.reshape(at[name].shape)


def check_cost(cost, names, samples, formula, draw):
    """`formula(parameters, *sample)` is the cost of one sample."""
    feeding = {name: place for place, name in enumerate(names)}
    parameters, at = randomized(cost, draw)

    def total(p):
        return sum(float(formula(p, *sample)) for sample in samples)

    plain = paddle.optimizer.Momentum(momentum=0.0, learning_rate=1.0)
    result = paddle.trainer.SGD(cost, parameters, plain, is_local=True).test(lambda: iter([samples]), feeding=feeding)
    np.testing.assert_allclose(result.cost, total(at) / len(samples), rtol=1e-5)
    for name, gradient in descent(cost, parameters, samples, feeding).items():
        np.testing.assert_allclose(gradient, slopes(total, at, name), rtol=2e-4, atol=2e-5, err_msg=name)


def check(output, names, samples, formula, draw):
    """`formula(parameters, *sample)` is the output for one sample: a row, or a row per position."""
    parameters, at = randomized(output, draw)
    feeding = {name: place for place, name in enumerate(names)}
    wanted = [np.asarray(formula(at, *sample)) for sample in samples]
    found = paddle.infer(output, parameters, samples, feeding)
    np.testing.assert_allclose(found, np.concatenate([np.atleast_2d(rows) for rows in wanted]), rtol=1e-4, atol=1e-5)
    is_sequence = wanted[0].ndim == 2
    kind = kinds.dense_vector_sequence if is_sequence else kinds.dense_vector
    target = layer.data("target", kind(output.size))
    goals = [draw.normal(size=rows.shape).astype(np.float32) for rows in wanted]
    check_cost(
        layer.square_error_cost(output, target),
        [*names, "target"],
        [(*sample, goal) for sample, goal in zip(samples, goals)],
        lambda p, *sample: ((formula(p, *sample[:-1]) - sample[-1]) ** 2).sum(),
        draw,
    )


def sigma(x):
    return 1 / (1 + np.exp(-x))


def shares(x):
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def rows_of(draw, size):
    return [(draw.normal(size=(length, size)).astype(np.float32),) for length in LENGTHS]


def words_of(draw, count):
    return [(draw.integers(0, count, length).tolist(),) for length in LENGTHS]


def row_sequence(size):
    return layer.data("x", kinds.dense_vector_sequence(size))


def test_fc_adds_its_inputs_products_and_a_bias(draw):
    one, two = layer.data("one", kinds.dense_vector(3)), layer.data("two", kinds.dense_vector(2))
    samples = [(draw.normal(size=3).astype("f"), draw.normal(size=2).astype("f")) for _ in range(4)]
    check(
        layer.fc([one, two], 5, name="joint"),
        ["one", "two"],
        samples,
        lambda p, a, b: np.tanh(a @ p["_joint.w0"] + b @ p["_joint.w1"] + p["_joint.wbias"][0]),
        draw,
    )


def test_an_embedding_is_a_row_of_its_table_and_repeated_words_add_their_gradients(draw):
    words = layer.data("words", kinds.integer_value_sequence(4))
    samples = [([2],), ([1, 1],), ([0, 3, 0, 0, 2, 1, 3],)]
    check(layer.embedding(words, 3, name="table"), ["words"], samples, lambda p, ids: p["_table.w0"][ids], draw)


POOLED = {
    "max": (lambda x: layer.pooling(x, paddle.pooling.Max()), lambda x: x.max(axis=0)),
    "mean": (lambda x: layer.pooling(x, paddle.pooling.Avg()), lambda x: x.sum(axis=0) / len(x)),
    "sum": (lambda x: layer.pooling(x, paddle.pooling.Sum()), lambda x: x.sum(axis=0)),
    "root": (lambda x: layer.pooling(x, paddle.pooling.SquareRootN()), lambda x: x.sum(axis=0) / math.sqrt(len(x))),
    "first": (layer.first_seq, lambda x: x[0]),
    "last": (layer.last_seq, lambda x: x[-1]),
}


@pytest.mark.parametrize("kind", POOLED)
def test_a_sequence_becomes_one_row(draw, kind):
    pooled, formula = POOLED[kind]
    words = layer.data("words", kinds.integer_value_sequence(6))
    network = pooled(layer.embedding(words, 3, name="table"))
    check(network, ["words"], words_of(draw, 6), lambda p, ids: formula(p["_table.w0"][ids]), draw)


@pytest.mark.parametrize("length, start, first", [(3, None, -1), (4, None, -2), (5, None, -2), (2, 0, 0), (3, -4, -4)])
def test_a_context_is_zero_where_its_sequence_has_ended(draw, length, start, first):
    words = layer.data("words", kinds.integer_value_sequence(6))
    table = layer.embedding(words, 2, name="table")
    window = layer.mixed(2 * length, input=[layer.context_projection(table, length, start)])

    def formula(p, ids):
        x = p["_table.w0"][ids]
        at = [[x[t + k] if 0 <= t + k < len(x) else np.zeros(2) for k in range(first, first + length)] for t in range(len(x))]
        return np.array([np.concatenate(row) for row in at])

    check(window, ["words"], words_of(draw, 6), formula, draw)


def lstm_by_hand(x, weight, bias):
    """Bias and weights are those of candidate, input gate, forget gate, output gate; three peepholes end the bias."""
    size = weight.shape[0]
    square = weight.reshape(size, 4, size)
    part = bias.reshape(7, size)
    h = c = np.zeros(size)
    out = []
    for row in x.reshape(len(x), 4, size):
        into = [row[k] + part[k] + h @ square[:, k] for k in range(4)]
        i, f = sigma(into[1] + part[4] * c), sigma(into[2] + part[5] * c)
        c = f * c + i * np.tanh(into[0])
        h = sigma(into[3] + part[6] * c) * np.tanh(c)
        out.append(h)
    return np.array(out)


def gru_by_hand(x, weight, bias):
    size = weight.shape[0]
    both, own = weight.ravel()[: 2 * size**2].reshape(size, 2, size), weight.ravel()[2 * size**2 :].reshape(size, size)
    h, out = np.zeros(size), []
    for z, r, candidate in (x + bias).reshape(len(x), 3, size):
        z, r = sigma(z + h @ both[:, 0]), sigma(r + h @ both[:, 1])
        h = (1 - z) * h + z * np.tanh(candidate + (r * h) @ own)
        out.append(h)
    return np.array(out)


def recurrent_by_hand(x, weight, bias):
    h, out = np.zeros(len(weight)), []
    for row in x:
        h = np.tanh(row + h @ weight + bias[0])
        out.append(h)
    return np.array(out)


RECURRENT = {"lstmemory": (4, lstm_by_hand), "grumemory": (3, gru_by_hand), "recurrent": (1, recurrent_by_hand)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_layers_follow_their_formulas(draw, kind, reverse):
    gates, by_hand = RECURRENT[kind]
    sums = layer.fc(row_sequence(2), 3 * gates, act=act.Linear(), bias_attr=False, name="sums")
    network = getattr(layer, kind)(sums, name="state", reverse=reverse)
    turned = slice(None, None, -1 if reverse else 1)

    def formula(p, x):
        return by_hand((x @ p["_sums.w0"])[turned], p["_state.w0"], p["_state.wbias"])[turned]

    check(network, ["x"], rows_of(draw, 2), formula, draw)


def test_the_simple_networks_are_their_layers(draw):
    x = row_sequence(2)
    lstm, gru = paddle.networks.simple_lstm(x, 2, name="lstm"), paddle.networks.simple_gru(x, 2, name="gru")

    def formula(p, x):
        parts = (("lstm", lstm_by_hand), ("gru", gru_by_hand))
        return np.hstack([f(x @ p[f"_{n}_transform.w0"], p[f"_{n}.w0"], p[f"_{n}.wbias"]) for n, f in parts])

    check(layer.concat([lstm, gru]), ["x"], rows_of(draw, 2), formula, draw)


def test_a_group_carries_its_memory_from_a_booted_state(draw):
    boot = layer.data("boot", kinds.dense_vector(3))

    def step(x):
        before = layer.memory("state", 3, boot_layer=boot)
        return layer.fc([x, before], 3, name="state", bias_attr=False)

    group = layer.recurrent_group(step, row_sequence(2), name="group")
    samples = [(x, draw.normal(size=3).astype("f")) for (x,) in rows_of(draw, 2)]

    def formula(p, x, h):
        out = []
        for row in x:
            h = np.tanh(row @ p["_state@group.w0"] + h @ p["_state@group.w1"])
            out.append(h)
        return np.array(out)

    check(group, ["x", "boot"], samples, formula, draw)


def path_score(x, tags, weight):
    inside = sum(weight[2 + a, b] for a, b in zip(tags, tags[1:]))
    return weight[0, tags[0]] + weight[1, tags[-1]] + inside + sum(x[t, tag] for t, tag in enumerate(tags))


def test_a_crf_is_the_likelihood_among_all_tag_sequences(draw):
    x, tags = row_sequence(2), layer.data("tags", kinds.integer_value_sequence(3))
    scores = layer.fc(x, 3, act=act.Linear(), name="scores")
    samples = [(rows, draw.integers(0, 3, len(rows)).tolist()) for (rows,) in rows_of(draw, 2)]

    def formula(p, x, tags):
        x = x @ p["_scores.w0"] + p["_scores.wbias"]
        every = [path_score(x, way, p["_chain"]) for way in itertools.product(range(3), repeat=len(x))]
        return np.logaddexp.reduce(every) - path_score(x, tags, p["_chain"])

    chain = paddle.attr.Param(name="_chain")
    cost = layer.crf(scores, tags, param_attr=chain)
    assert paddle.parameters.create(cost).get_shape("_chain") == (5, 3)
    check_cost(cost, ["x", "tags"], samples, formula, draw)

    decoded = layer.crf_decoding(scores, 3, param_attr=chain)
    parameters, at = randomized(decoded, draw)
    best = []
    for rows, _ in samples:
        at_rows = rows @ at["_scores.w0"] + at["_scores.wbias"]
        ways = itertools.product(range(3), repeat=len(rows))
        best += max(ways, key=lambda way: path_score(at_rows, way, at["_chain"]))
    found = paddle.infer(decoded, parameters, [sample[:1] for sample in samples], {"x": 0}, field="id")
    assert found.tolist() == best


def windows(image, size, stride, padding):
    """The places of each window that are inside the image, row by row; sizes are rounded up."""
    count = [math.ceil((side + 2 * padding - size) / stride) + 1 for side in image.shape]
    for row, column in itertools.product(*map(range, count)):
        top, left = row * stride - padding, column * stride - padding
        yield image[max(top, 0) : top + size, max(left, 0) : left + size]


def convolved(image, filters, stride, padding):
    image = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    height, width = filters.shape[-2:]
    places = itertools.product(
        range(0, image.shape[1] - height + 1, stride), range(0, image.shape[2] - width + 1, stride)
    )
    cut = [image[:, row : row + height, column : column + width] for row, column in places]
    return np.array([[(one * part).sum() for part in cut] for one in filters])


def test_a_convolution_rounds_down_and_shares_one_bias_per_filter(draw):
    image = layer.data("image", kinds.dense_vector(2 * 5 * 6), height=5, width=6)
    network = layer.img_conv(image, filter_size=3, num_filters=3, stride=2, padding=1, name="conv", act=act.Tanh())
    samples = [(draw.normal(size=60).astype("f"),) for _ in range(2)]

    def formula(p, x):
        found = convolved(x.reshape(2, 5, 6), p["_conv.w0"].reshape(3, 2, 3, 3), 2, 1)
        return np.tanh(found + p["_conv.wbias"].reshape(3, 1)).ravel()

    assert network.size == 3 * 3 * 3
    check(network, ["image"], samples, formula, draw)


@pytest.mark.parametrize(
    "kind, exclude, best",
    [
        (paddle.pooling.Max(), None, lambda cells: cells.max()),
        (paddle.pooling.Avg(), None, lambda cells: cells.mean()),
        (paddle.pooling.Avg(), False, lambda cells: cells.sum() / 9),
    ],
)
@pytest.mark.parametrize("side, stride, padding", [(6, 2, 0), (6, 3, 1), (7, 2, 1)])
def test_windows_that_reach_over_the_edge_count(draw, kind, exclude, best, side, stride, padding):
    given = layer.data("given", kinds.dense_vector(3))
    image = layer.fc(given, 2 * side * side, name="image", act=act.Linear())
    network = layer.img_pool(image, 3, stride=stride, padding=padding, num_channels=2, pool_type=kind, exclude_mode=exclude)
    samples = [(draw.normal(size=3).astype("f"),) for _ in range(2)]

    def formula(p, x):
        channels = (x @ p["_image.w0"] + p["_image.wbias"][0]).reshape(2, side, side)
        return np.array([best(cells) for channel in channels for cells in windows(channel, 3, stride, padding)])

    check(network, ["given"], samples, formula, draw)


def test_batch_norm_tests_by_its_moving_statistics_and_trains_by_the_batch(draw):
    x, goal = layer.data("x", kinds.dense_vector(2 * 4)), layer.data("goal", kinds.dense_vector(2 * 4))
    picture = layer.fc(x, 2 * 4, act=act.Linear(), bias_attr=False, name="picture")
    normed = layer.batch_norm(picture, act=act.Linear(), num_channels=2, name="norm", moving_average_fraction=0.75)
    cost = layer.square_error_cost(normed, goal)
    parameters, at = randomized(cost, draw)
    parameters.set("_norm.w2", np.float32([[0.5, 2.0]]))
    at["_norm.w2"] = np.array([[0.5, 2.0]])
    data = draw.normal(size=(3, 2, 8)).astype(np.float32)
    samples = [(a, b) for a, b in data]

    def normalized(p, mean, variance):
        seen = (data[:, 0] @ p["_picture.w0"]).reshape(3, 2, 4)
        if mean is None:
            mean, variance = seen.mean(axis=(0, 2)), seen.var(axis=(0, 2))
        unit = (seen - mean.reshape(2, 1)) / np.sqrt(variance.reshape(2, 1) + 1e-5)
        return (unit * p["_norm.w0"].reshape(2, 1) + p["_norm.wbias"].reshape(2, 1)).reshape(3, 8)

    found = paddle.infer(normed, parameters, [sample[:1] for sample in samples], {"x": 0})
    np.testing.assert_allclose(found, normalized(at, at["_norm.w1"], at["_norm.w2"]), rtol=1e-4, atol=1e-5)

    took = descent(cost, parameters, samples, {"x": 0, "goal": 1})
    for name in ("_picture.w0", "_norm.w0", "_norm.wbias"):
        slope = slopes(lambda p: ((normalized(p, None, None) - data[:, 1]) ** 2).sum(), at, name)
        np.testing.assert_allclose(took[name], slope, rtol=5e-3, atol=5e-4, err_msg=name)
    seen = (data[:, 0] @ at["_picture.w0"]).reshape(3, 2, 4)
    for name, now in (("_norm.w1", seen.mean(axis=(0, 2))), ("_norm.w2", seen.var(axis=(0, 2)))):
        np.testing.assert_allclose(parameters.get(name)[0], 0.75 * at[name][0] + 0.25 * now, rtol=1e-4, atol=1e-6)


def test_dropout_keeps_values_whole_in_training_and_scales_all_in_testing(draw):
    x = layer.data("x", kinds.dense_vector(400))
    dropped = layer.dropout(layer.fc(x, 400, act=act.Linear(), name="same", bias_attr=False), 0.3)
    cost = layer.sum_cost(dropped)
    parameters = paddle.parameters.create(cost)
    parameters.set("_same.w0", np.eye(400, dtype=np.float32))
    row = draw.uniform(1, 2, 400).astype(np.float32)
    np.testing.assert_allclose(paddle.infer(dropped, parameters, [(row,)])[0], 0.7 * row, rtol=1e-5)
    # The cost is the sum of what was kept, so the diagonal's gradient tells which values were.
    took = np.diag(descent(cost, parameters, [(row,)], {"x": 0})["_same.w0"])
    kept = took > 0
    np.testing.assert_allclose(took[kept], row[kept], rtol=1e-4)
    assert (took[~kept] == 0).all() and 0.6 < kept.mean() < 0.8


def test_similarity_is_a_scaled_cosine(draw):
    a, b = layer.data("a", kinds.dense_vector(3)), layer.data("b", kinds.dense_vector(4))
    left, right = (layer.fc(x, 5, act=act.Linear(), name=name) for x, name in ((a, "left"), (b, "right")))
    samples = [(draw.normal(size=3).astype("f"), draw.normal(size=4).astype("f")) for _ in range(3)]

    def formula(p, a, b):
        a, b = a @ p["_left.w0"] + p["_left.wbias"][0], b @ p["_right.w0"] + p["_right.wbias"][0]
        return np.array([5 * (a @ b) / np.linalg.norm(a) / np.linalg.norm(b)])

    check(layer.cos_sim(left, right, scale=5), ["a", "b"], samples, formula, draw)


def with_fc(kind, size, activation):
    """A layer of `size` on two numbers, its label, and what the layer gives for one sample."""
    x, label = layer.data("x", kinds.dense_vector(2)), layer.data("label", kind)
    output = layer.fc(x, size, act=activation, name="out", bias_attr=False)
    return output, label, lambda p, x: x @ p["_out.w0"]


def huber(off, delta):
    off = np.abs(off)
    return np.where(off <= delta, off**2 / 2, delta * off - delta**2 / 2).sum()


REGRESSIONS = {
    "square_error_cost": ({}, lambda off: (off**2).sum()),
    "huber_regression_cost": ({"delta": 0.6, "coeff": 2.0}, lambda off: 2 * huber(off, 0.6)),
    "smooth_l1_cost": ({"coeff": 0.5}, lambda off: 0.5 * huber(off, 1.0)),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_costs_of_numbers(draw, name):
    options, price = REGRESSIONS[name]
    output, label, score = with_fc(kinds.dense_vector(3), 3, act.Linear())
    samples = [(draw.normal(size=2).astype("f"), draw.normal(0, 2, 3).astype("f")) for _ in range(5)]
    cost = getattr(layer, name)(output, label, **options)
    check_cost(cost, ["x", "label"], samples, lambda p, x, y: price(score(p, x) - y), draw)


def test_a_cost_per_class_may_be_weighted_and_scaled(draw):
    output, label, score = with_fc(kinds.integer_value(4), 4, act.Softmax())
    weight = layer.data("weight", kinds.dense_vector(1))
    samples = [(draw.normal(size=2).astype("f"), n % 4, np.float32([n / 3])) for n in range(5)]
    for each, factor in ((layer.classification_cost, 1.0), (layer.cross_entropy_cost, 0.25)):
        cost = each(output, label, weight=weight, coeff=factor)
        names = ["x", "label", "weight"]
        check_cost(cost, names, samples, lambda p, x, y, w: -factor * w[0] * np.log(shares(score(p, x))[y]), draw)


def test_a_cost_per_class_of_every_position(draw):
    x, tags = row_sequence(2), layer.data("tags", kinds.integer_value_sequence(3))
    cost = layer.classification_cost(layer.fc(x, 3, act=act.Softmax(), name="out"), tags)
    samples = [(rows, draw.integers(0, 3, len(rows)).tolist()) for (rows,) in rows_of(draw, 2)]

    def formula(p, x, tags):
        return -np.log(shares(x @ p["_out.w0"] + p["_out.wbias"])[np.arange(len(tags)), tags]).sum()

    check_cost(cost, ["x", "tags"], samples, formula, draw)


def test_exponentials_that_should_normalize_themselves(draw):
    output, label, score = with_fc(kinds.integer_value(3), 3, act.Exp())
    samples = [(draw.normal(size=2).astype("f"), n % 3) for n in range(4)]

    def formula(p, x, y):
        log_sum = np.log(np.exp(score(p, x)).sum())
        return log_sum - score(p, x)[y] + 0.3 * log_sum**2

    cost = layer.cross_entropy_with_selfnorm_cost(output, label, softmax_selfnorm_alpha=0.3)
    check_cost(cost, ["x", "label"], samples, formula, draw)


def test_labels_that_each_may_hold(draw):
    output, label, score = with_fc(kinds.sparse_binary_vector(3), 3, act.Sigmoid())
    samples = [(draw.normal(size=2).astype("f"), ids) for ids in ([0], [0, 2], [], [1, 2, 0])]

    def formula(p, x, ids):
        chance = sigma(score(p, x))
        return -sum(np.log(chance[k] if k in ids else 1 - chance[k]) for k in range(3))

    check_cost(layer.multi_binary_label_cross_entropy_cost(output, label), ["x", "label"], samples, formula, draw)


def test_margins_of_two_classes(draw):
    output, label, score = with_fc(kinds.integer_value(2), 1, act.Linear())
    samples = [(np.float32([size, size / 2]), n % 2) for n, size in enumerate((0.3, -0.6, 4, -5, 3, -2))]

    def formula(p, x, y):
        margin = (2 * y - 1) * score(p, x)[0]
        return -4 * margin if margin < -1 else max(0.0, 1 - margin) ** 2

    check_cost(layer.huber_classification_cost(output, label), ["x", "label"], samples, formula, draw)


def test_the_order_of_two_scores(draw):
    a, b, wanted = (layer.data(name, kinds.dense_vector(size)) for name, size in (("a", 2), ("b", 2), ("wanted", 1)))
    shared = paddle.attr.Param(name="_shared")
    left, right = (layer.fc(x, 1, act=act.Linear(), param_attr=shared, bias_attr=False) for x in (a, b))
    samples = [(*draw.normal(size=(2, 2)).astype("f"), np.float32([p])) for p in (0, 0.5, 1)]

    def formula(p, a, b, wanted):
        o = ((a - b) @ p["_shared"])[0]
        return -wanted[0] * o + np.log(1 + np.exp(o))

    check_cost(layer.rank_cost(left, right, wanted), ["a", "b", "wanted"], samples, formula, draw)


# One function per optimizer: from gradient, value and the numbers kept, to the step that is added to the value.


def velocity(kept, rate, gradient, value, momentum, decay):
    kept["v"] = momentum * kept.get("v", 0.0) - rate * (gradient + decay * value)
    return kept["v"]


def mean_square(kept, gradient, rho):
    first = "square" not in kept
    kept["square"] = gradient**2 if first else rho * kept["square"] + (1 - rho) * gradient**2
    return kept["square"]


def by_momentum(kept, g, w, t):
    return velocity(kept, 0.01, g, w, 0.9, 0.1)


def by_adagrad(kept, g, w, t):
    kept["sum"] = kept.get("sum", 0.0) + g**2
    return velocity(kept, 0.01 / np.sqrt(kept["sum"] + 1e-6), g, w, 0.0, 0.1)


def by_decayed_adagrad(kept, g, w, t):
    return velocity(kept, 0.01 / np.sqrt(mean_square(kept, g, 0.9) + 1e-6), g, w, 0.0, 0.1)


def by_rmsprop(kept, g, w, t):
    square = mean_square(kept, g, 0.9)
    kept["mean"] = 0.9 * kept.get("mean", 0.0) + 0.1 * g
    return velocity(kept, 0.01 / np.sqrt(square - kept["mean"] ** 2 + 1e-6), g, w, 0.0, 0.1)


def by_adadelta(kept, g, w, t):
    kept["square"] = 0.9 * kept.get("square", 0.0) + 0.1 * g**2
    factor = np.sqrt((kept.get("moved", 0.0) + 1e-6) / (kept["square"] + 1e-6))
    kept["moved"] = 0.9 * kept.get("moved", 0.0) + 0.1 * (g * factor) ** 2
    return velocity(kept, 0.01 * factor, g, w, 0.0, 0.1)


def by_adam(kept, g, w, t):
    kept["m"] = 0.8 * kept.get("m", 0.0) + 0.2 * g
    kept["v"] = 0.95 * kept.get("v", 0.0) + 0.05 * g**2
    return -0.01 * math.sqrt(1 - 0.95**t) / (1 - 0.8**t) * kept["m"] / (np.sqrt(kept["v"]) + 1e-8)


def by_adamax(kept, g, w, t):
    kept["m"] = 0.8 * kept.get("m", 0.0) + 0.2 * g
    kept["u"] = np.maximum(0.95 * kept.get("u", 0.0), np.abs(g))
    return -0.01 / (1 - 0.8**t) * kept["m"] / kept["u"]


OPTIMIZERS = {
    "Momentum": ({"momentum": 0.9}, True, by_momentum),
    "AdaGrad": ({}, True, by_adagrad),
    "DecayedAdaGrad": ({"rho": 0.9, "epsilon": 1e-6}, True, by_decayed_adagrad),
    "RMSProp": ({"rho": 0.9, "epsilon": 1e-6}, True, by_rmsprop),
    "AdaDelta": ({"rho": 0.9, "epsilon": 1e-6}, True, by_adadelta),
    "Adam": ({"beta1": 0.8, "beta2": 0.95}, False, by_adam),
    "Adamax": ({"beta1": 0.8, "beta2": 0.95}, False, by_adamax),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_take_the_documented_steps(draw, name):
    options, has_decay, rule = OPTIMIZERS[name]
    x, y = layer.data("x", kinds.dense_vector(3)), layer.data("y", kinds.dense_vector(2))
    cost = layer.square_error_cost(layer.fc(x, 2, act=act.Linear(), name="line", bias_attr=False), y)
    parameters, at = randomized(cost, draw)
    if has_decay:
        options = {**options, "regularization": paddle.optimizer.L2Regularization(rate=0.1)}
    optimizer = getattr(paddle.optimizer, name)(learning_rate=0.01, **options)
    trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=True)
    # Batches of 1, 2 and 7 samples: a mean over a batch would differ.
    given = [draw.normal(size=(size, 5)).astype(np.float32) for size in LENGTHS * 4]
    trainer.train(lambda: iter([[(row[:3], row[3:]) for row in batch] for batch in given]), feeding={"x": 0, "y": 1})
    value, kept = at["_line.w0"], {}
    for number, batch in enumerate(given, 1):
        x, y = batch[:, :3].astype(np.float64), batch[:, 3:].astype(np.float64)
        value = value + rule(kept, 2 * x.T @ (x @ value - y), value, number)
    np.testing.assert_allclose(parameters.get("_line.w0"), value, rtol=1e-4, atol=1e-5)
