"""Whether a review praises or blames, by the two networks of the 2017 book.

    python prepare.py data
    DATA_HOME=data python train.py conv
    DATA_HOME=data python train.py lstm

`bag` is a bag of words, for comparison. The same program trains alone and in a job with parameter servers.
"""

import os
import sys
import warnings

import paddle.v2 as paddle

TRAINER_ID = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
PASSES = int(os.getenv("PADDLE_INIT_NUM_PASSES", "6"))
CLASSES = 2

warnings.filterwarnings("ignore", message=".*of the original archive")


def convolution_net(embedded, hidden=32):
    """Windows of three and of four words."""
    three = paddle.networks.sequence_conv_pool(input=embedded, context_len=3, hidden_size=hidden)
    four = paddle.networks.sequence_conv_pool(input=embedded, context_len=4, hidden_size=hidden)
    return paddle.layer.fc(input=[three, four], size=CLASSES, act=paddle.activation.Softmax())


def stacked_lstm_net(embedded, hidden=64, count=3):
    """Three LSTMs, one on the other; the second reads backwards."""
    linear, relu = paddle.activation.Linear(), paddle.activation.Relu()
    no_decay = paddle.attr.Param(initial_std=0.0, l2_rate=0.0)
    fc = paddle.layer.fc(input=embedded, size=hidden, act=linear, bias_attr=no_decay)
    lstm = paddle.layer.lstmemory(input=fc, act=relu, bias_attr=no_decay)
    for number in range(2, count + 1):
        fc = paddle.layer.fc(input=[fc, lstm], size=hidden, act=linear, bias_attr=no_decay)
        lstm = paddle.layer.lstmemory(
            input=fc,
            reverse=number % 2 == 0,
            act=relu,
            bias_attr=no_decay,
            layer_attr=paddle.attr.Extra(drop_rate=0.1),
        )
    last = [paddle.layer.pooling(input=each, pooling_type=paddle.pooling.Max()) for each in (fc, lstm)]
    return paddle.layer.fc(input=last, size=CLASSES, act=paddle.activation.Softmax(), bias_attr=no_decay)


def bag_of_words(embedded):
    mean = paddle.layer.pooling(input=embedded, pooling_type=paddle.pooling.Avg())
    return paddle.layer.fc(input=mean, size=CLASSES, act=paddle.activation.Softmax())


NETWORKS = {"conv": convolution_net, "lstm": stacked_lstm_net, "bag": bag_of_words}


def share(reader):
    def mine():
        for number, sample in enumerate(reader()):
            if number // 2 % TRAINERS == TRAINER_ID:  # praise and blame take turns
                yield sample

    return mine


def main(network):
    paddle.init(use_gpu=False, trainer_count=1)
    words = paddle.dataset.imdb.word_dict()
    data = paddle.layer.data("word", paddle.data_type.integer_value_sequence(len(words)))
    label = paddle.layer.data("label", paddle.data_type.integer_value(CLASSES))
    output = NETWORKS[network](paddle.layer.embedding(input=data, size=16))
    cost = paddle.layer.classification_cost(input=output, label=label)

    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(
        learning_rate=1e-2,
        regularization=paddle.optimizer.L2Regularization(rate=8e-4),
        model_average=paddle.optimizer.ModelAverage(average_window=0.5, max_average_window=50),
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)
    feeding = {"word": 0, "label": 1}

    def event_handler(event):
        if isinstance(event, paddle.event.EndPass) and TRAINER_ID == 0:
            result = trainer.test(reader=paddle.batch(paddle.dataset.imdb.test(words), batch_size=100), feeding=feeding)
            error = result.metrics["classification_error_evaluator"]
            print(f"pass {event.pass_id} test cost {result.cost:.4f} error {error:.4f}", flush=True)

    reader = paddle.batch(paddle.reader.shuffle(share(paddle.dataset.imdb.train(words)), buf_size=2000), batch_size=50)
    trainer.train(reader=reader, event_handler=event_handler, feeding=feeding, num_passes=PASSES)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "conv")
