"""Word vectors of the 2017 book: a network that predicts a word from the four before it.

    python prepare.py data && DATA_HOME=data python train.py

The same program trains alone and in a job with parameter servers.
"""

import os
import warnings

import paddle.v2 as paddle

TRAINER_ID = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
PASSES = int(os.getenv("PADDLE_INIT_NUM_PASSES", "4"))
EMBEDDING = 16
HIDDEN = 64
N = 5

warnings.filterwarnings("ignore", message=".*of the original archive")


def word_vector(word):
    """All positions share one table."""
    attributes = paddle.attr.Param(name="_proj", initial_std=0.1, learning_rate=1, l2_rate=0)
    return paddle.layer.table_projection(input=word, size=EMBEDDING, param_attr=attributes)


def share(reader):
    def mine():
        for number, sample in enumerate(reader()):
            if number % TRAINERS == TRAINER_ID:
                yield sample

    return mine


def main():
    paddle.init(use_gpu=False, trainer_count=1)
    word_dict = paddle.dataset.imikolov.build_dict(min_word_freq=5)
    size = len(word_dict)

    names = ["firstw", "secondw", "thirdw", "fourthw", "fifthw"]
    words = [paddle.layer.data(name=name, type=paddle.data_type.integer_value(size)) for name in names]
    context = paddle.layer.concat(input=[word_vector(word) for word in words[:-1]])
    hidden = paddle.layer.fc(
        input=context,
        size=HIDDEN,
        act=paddle.activation.Sigmoid(),
        layer_attr=paddle.attr.Extra(drop_rate=0.1),
        bias_attr=paddle.attr.Param(learning_rate=2),
        param_attr=paddle.attr.Param(initial_std=1.0 / EMBEDDING**0.5, learning_rate=1),
    )
    predict = paddle.layer.fc(
        input=hidden, size=size, bias_attr=paddle.attr.Param(learning_rate=2), act=paddle.activation.Softmax()
    )
    cost = paddle.layer.classification_cost(input=predict, label=words[-1])

    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(learning_rate=1e-2, regularization=paddle.optimizer.L2Regularization(8e-4))
    trainer = paddle.trainer.SGD(cost, parameters, optimizer)

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 100 == 0:
            print(f"pass {event.pass_id} batch {event.batch_id} cost {event.cost:.4f} {event.metrics}", flush=True)
        if isinstance(event, paddle.event.EndPass) and TRAINER_ID == 0:
            result = trainer.test(paddle.batch(paddle.dataset.imikolov.test(word_dict, N), 100))
            print(f"pass {event.pass_id} test cost {result.cost:.4f} {result.metrics}", flush=True)
            os.makedirs("output", exist_ok=True)
            with open(f"output/params_pass_{event.pass_id}.tar", "wb") as file:
                parameters.to_tar(file)

    reader = paddle.batch(share(paddle.dataset.imikolov.train(word_dict, N)), 100)
    trainer.train(reader, num_passes=PASSES, event_handler=event_handler)


if __name__ == "__main__":
    main()
