"""`paddle.v2` with a parameter server: a real one, and trainers in processes of their own.

The number of servers changes no bit of a result, which the parameter server's own tests show; one is enough here.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("paddle.nn")

import paddle.v2 as paddle
from paddlecloud import _native

LIMIT_SECONDS = 300
TRAINERS = 2
PASSES = 2
STEPS = 50
BATCH = 8

# The network and its batches, for this process and for trainers.
PROGRAM = """
import os
import numpy as np
import paddle.v2 as paddle

def network():
    word = paddle.layer.data("word", paddle.data_type.integer_value(30))
    x = paddle.layer.data("x", paddle.data_type.dense_vector(5))
    label = paddle.layer.data("label", paddle.data_type.integer_value(3))
    hidden = paddle.layer.fc([paddle.layer.embedding(word, 4, name="word_vector"), x], 6, name="hidden")
    out = paddle.layer.fc(hidden, 3, act=paddle.activation.Softmax(), name="out", param_attr=paddle.attr.Param(learning_rate=0.5))
    return paddle.layer.classification_cost(out, label)

def batch(trainer, number, size):
    source = np.random.default_rng([trainer, number])
    rows = source.normal(size=(size, 5)).astype(np.float32)
    words = source.integers(0, 30, size)
    labels = (words + (rows.sum(axis=1) > 0)) % 3
    return [(int(word), row, int(label)) for word, row, label in zip(words, rows, labels)]

def optimizer(name):
    o = paddle.optimizer
    # Rates that differ from batch to batch show whether samples are counted, and by whom.
    poly = dict(learning_rate_schedule="poly", learning_rate_decay_a=0.01, learning_rate_decay_b=0.5)
    steps = dict(learning_rate_schedule="manual", learning_rate_args="200:1.0,800:0.5,1200:0.1")
    passes = dict(learning_rate_schedule="pass_manual", learning_rate_args="0:1.0,1:0.2")
    # Without decay: Adam takes whole steps along gradients of rounding's size, which decay leaves for words that are not seen.
    return {
        "Momentum": lambda: o.Momentum(momentum=0.9, learning_rate=0.005, regularization=o.L2Regularization(0.01)),
        "Momentum by samples": lambda: o.Momentum(momentum=0.9, learning_rate=0.01, regularization=o.L2Regularization(0.01), **poly),
        "Momentum in segments": lambda: o.Momentum(momentum=0.5, learning_rate=0.01, regularization=o.L1Regularization(0.01), **steps),
        "Momentum by passes": lambda: o.Momentum(momentum=0.9, learning_rate=0.01, **passes),
        "Adam": lambda: o.Adam(learning_rate=0.01),
        "Adamax": lambda: o.Adamax(learning_rate=0.01, **poly),
        "AdaGrad": lambda: o.AdaGrad(learning_rate=0.05),
        "DecayedAdaGrad": lambda: o.DecayedAdaGrad(learning_rate=0.01, **steps),
        "RMSProp": lambda: o.RMSProp(learning_rate=0.005),
        "AdaDelta": lambda: o.AdaDelta(learning_rate=1.0),
    }[name]()
"""

TRAINER = (
    PROGRAM
    + """
import sys
name, steps, size, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
trainer_id = int(os.environ["PADDLE_INIT_TRAINER_ID"])
paddle.init()
cost = network()
parameters = paddle.parameters.create(cost)
trainer = paddle.trainer.SGD(cost, parameters, optimizer(name))
passes, calls = int(sys.argv[5]), int(sys.argv[6])
for _ in range(calls):
    trainer.train(lambda: (batch(trainer_id, number, size) for number in range(steps)), num_passes=passes)
with open(out, "wb") as file:
    parameters.to_tar(file)
"""
)


def start(tmp_path, address, trainer, name, steps, calls):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PADDLE", "TRAINING", "TRAINER"))}
    job = {
        "PADDLE_PSERVERS_IP_PORT_LIST": address,
        "PADDLE_INIT_TRAINER_ID": str(trainer),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(TRAINERS),
        "PADDLE_PS_SECRET": "hush",
    }
    passes = PASSES // calls
    command = [sys.executable, "-c", TRAINER, name, str(steps), str(BATCH), str(tmp_path / f"{trainer}.tar"), str(passes), str(calls)]
    return subprocess.Popen(command, env={**clean, **job}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def train_remotely(tmp_path, name, steps, calls=1):
    """Parameters of every trainer at its end; `steps` are each trainer's numbers of batches in a pass."""
    address = _native.ps_serve(TRAINERS, "hush")
    running = [start(tmp_path, address, trainer, name, count, calls) for trainer, count in enumerate(steps)]
    try:
        for process in running:
            said, _ = process.communicate(timeout=LIMIT_SECONDS)
            assert process.returncode == 0, said
    finally:
        for process in running:
            process.kill()
    return [
        paddle.parameters.Parameters.from_tar(open(tmp_path / f"{trainer}.tar", "rb")) for trainer in range(TRAINERS)
    ]


@pytest.mark.parametrize(
    "name",
    [
        "Momentum", "Momentum by samples", "Momentum in segments", "Momentum by passes",
        "Adam", "Adamax", "AdaGrad", "DecayedAdaGrad", "RMSProp", "AdaDelta",
    ],
)  # fmt: skip
def test_two_trainers_train_like_one_process_on_the_joined_batches(tmp_path, name):
    ours = {}
    exec(PROGRAM, ours)
    cost = ours["network"]()
    parameters = paddle.parameters.create(cost)
    before = {key: parameters[key] for key in parameters.names()}
    trainer = paddle.trainer.SGD(cost, parameters, ours["optimizer"](name), is_local=True)
    joined = [sum((ours["batch"](each, number, BATCH) for each in range(TRAINERS)), []) for number in range(STEPS)]
    trainer.train(lambda: iter(joined), num_passes=PASSES)

    first, second = train_remotely(tmp_path, name, [STEPS, STEPS])
    for key in parameters.names():
        assert np.array_equal(first[key], second[key]), "all trainers end with the servers' values"
        np.testing.assert_allclose(first[key], parameters[key], atol=1e-4, err_msg=key)
    assert max(np.abs(parameters[key] - before[key]).max() for key in before) > 0.1, "it learned something"


def test_unequal_numbers_of_batches_do_not_block(tmp_path):
    train_remotely(tmp_path, "Momentum", [12, 5])


def test_a_program_may_call_train_for_each_pass(tmp_path):
    whole, _ = train_remotely(tmp_path, "Momentum", [5, 5])
    by_pass, _ = train_remotely(tmp_path, "Momentum", [5, 5], calls=PASSES)
    for key in whole.names():
        assert np.array_equal(by_pass[key], whole[key]), key
