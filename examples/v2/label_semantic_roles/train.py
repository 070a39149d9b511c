"""Who does what to whom, by the network of the 2017 book: eight features, LSTMs and a CRF.

    python prepare.py data
    DATA_HOME=data python train.py            # the CRF
    DATA_HOME=data python train.py softmax    # the same network, but every tag on its own

It is shallower than the original, and its LSTM reads from right to left. The same program trains alone and in a job with parameter servers.
"""

import math
import os
import sys
import warnings

import numpy as np
import paddle.v2 as paddle
import paddle.v2.dataset.conll05 as conll05
import paddle.v2.evaluator as evaluator

TRAINER_ID = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
PASSES = int(os.getenv("PADDLE_INIT_NUM_PASSES", "3"))
WORD_DIM, MARK_DIM, HIDDEN = 32, 5, 64
STD = 1 / math.sqrt(HIDDEN) / 3.0
NAMES = ["word", "ctx_n2", "ctx_n1", "ctx_0", "ctx_p1", "ctx_p2", "verb", "mark"]
FEEDING = {**{f"{name}_data": number for number, name in enumerate(NAMES)}, "target": len(NAMES)}
HELD_OUT = 5

warnings.filterwarnings("ignore", message=".*of the original archive")


def sequence(name, count):
    return paddle.layer.data(name=name, type=paddle.data_type.integer_value_sequence(count))


def features(words, verbs, labels):
    data = {name: sequence(f"{name}_data", len(words)) for name in NAMES[:6]}
    data["verb"], data["mark"] = sequence("verb_data", len(verbs)), sequence("mark_data", 2)
    vectors = paddle.attr.Param(name="emb", is_static=True)
    embedded = [paddle.layer.embedding(size=WORD_DIM, input=data[name], param_attr=vectors) for name in NAMES[:6]]
    embedded.append(paddle.layer.embedding(size=WORD_DIM, input=data["verb"], param_attr=paddle.attr.Param(name="vemb")))
    embedded.append(paddle.layer.embedding(size=MARK_DIM, input=data["mark"]))

    def joined(inputs, size):
        default = paddle.attr.Param(initial_std=STD)
        parts = [paddle.layer.full_matrix_projection(input=each, param_attr=default) for each in inputs]
        return paddle.layer.mixed(size=size, bias_attr=default, input=parts)

    hidden = joined(embedded, HIDDEN)
    lstm = paddle.layer.lstmemory(
        input=hidden,
        act=paddle.activation.Relu(),
        gate_act=paddle.activation.Sigmoid(),
        state_act=paddle.activation.Sigmoid(),
        reverse=True,
        bias_attr=paddle.attr.Param(initial_std=0.0),
        param_attr=paddle.attr.Param(initial_std=STD),
    )
    return joined([hidden, lstm], len(labels))


def network(words, verbs, labels, by_crf):
    """The cost, and a layer that is 1 where a tag is wrong."""
    scores = features(words, verbs, labels)
    target = sequence("target", len(labels))
    if by_crf:
        cost = paddle.layer.crf(
            size=len(labels), input=scores, label=target, param_attr=paddle.attr.Param(name="crfw", initial_std=STD)
        )
        wrong = paddle.layer.crf_decoding(
            size=len(labels), input=scores, label=target, param_attr=paddle.attr.Param(name="crfw")
        )
        evaluator.sum(input=wrong, name="error")
        return cost, wrong
    chances = paddle.layer.mixed(
        size=len(labels), act=paddle.activation.Softmax(), input=[paddle.layer.identity_projection(input=scores)]
    )
    evaluator.classification_error(input=chances, label=target, name="error")
    return paddle.layer.cross_entropy_cost(input=chances, label=target), None


def vectors(count):
    """The words' vectors, which are not trained: a header of 16 bytes, then rows."""
    with open(conll05.get_embedding(), "rb") as file:
        file.read(16)
        return np.fromfile(file, dtype=np.float32).reshape(count, WORD_DIM)


def part(is_test):
    """Every fifth sentence is for testing; trainers share the others."""

    def reader():
        for number, sample in enumerate(conll05.test()()):
            if (number % HELD_OUT == 0) != is_test:
                continue
            if is_test or number % TRAINERS == TRAINER_ID:
                yield sample

    return reader


def main(by_crf):
    paddle.init(use_gpu=False, trainer_count=1)
    words, verbs, labels = conll05.get_dict()
    cost, wrong = network(words, verbs, labels, by_crf)
    parameters = paddle.parameters.create(cost)
    parameters.set("emb", vectors(len(words)))
    trainer = paddle.trainer.SGD(
        cost=cost,
        parameters=parameters,
        update_equation=paddle.optimizer.Adam(learning_rate=1e-2),
        extra_layers=wrong,
    )

    def event_handler(event):
        if isinstance(event, paddle.event.EndPass) and TRAINER_ID == 0:
            result = trainer.test(reader=paddle.batch(part(True), batch_size=20), feeding=FEEDING)
            print(f"pass {event.pass_id} test cost {result.cost:.4f} error {result.metrics['error']:.4f}", flush=True)

    reader = paddle.batch(paddle.reader.shuffle(part(False), buf_size=2000), batch_size=20)
    trainer.train(reader=reader, event_handler=event_handler, num_passes=PASSES, feeding=FEEDING)


if __name__ == "__main__":
    main(by_crf="softmax" not in sys.argv[1:])
