"""Handwritten digits by the convolutional network of the 2017 book.

    python prepare.py data && DATA_HOME=data python train.py

The same program trains alone and in a job with parameter servers.
"""

import os
import warnings

import paddle.v2 as paddle

TRAINER_ID = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
PASSES = int(os.getenv("PADDLE_INIT_NUM_PASSES", "10"))
BATCH = 128

warnings.filterwarnings("ignore", message=".*of the original archive")


def share(reader):
    """Every trainer takes its own samples."""

    def mine():
        for number, sample in enumerate(reader()):
            if number % TRAINERS == TRAINER_ID:
                yield sample

    return mine


def convolutional_neural_network(image):
    first = paddle.networks.simple_img_conv_pool(
        input=image,
        filter_size=5,
        num_filters=20,
        num_channel=1,
        pool_size=2,
        pool_stride=2,
        act=paddle.activation.Relu(),
    )
    second = paddle.networks.simple_img_conv_pool(
        input=first,
        filter_size=5,
        num_filters=50,
        num_channel=20,
        pool_size=2,
        pool_stride=2,
        act=paddle.activation.Relu(),
    )
    return paddle.layer.fc(input=second, size=10, act=paddle.activation.Softmax())


def main():
    paddle.init(use_gpu=False, trainer_count=1)
    image = paddle.layer.data(name="pixel", type=paddle.data_type.dense_vector(784))
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
    predict = convolutional_neural_network(image)
    cost = paddle.layer.classification_cost(input=predict, label=label)

    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.03 / BATCH / TRAINERS,
        momentum=0.9,
        regularization=paddle.optimizer.L2Regularization(rate=0.0005 * BATCH),
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)

    def event_handler(event):
        if isinstance(event, paddle.event.EndPass) and TRAINER_ID == 0:
            result = trainer.test(reader=paddle.batch(paddle.dataset.mnist.test(), batch_size=BATCH))
            error = result.metrics["classification_error_evaluator"]
            print(f"pass {event.pass_id} test cost {result.cost:.4f} error {error:.4f}", flush=True)
            os.makedirs("output", exist_ok=True)
            with open(f"output/params_pass_{event.pass_id}.tar", "wb") as file:
                parameters.to_tar(file)

    reader = paddle.batch(paddle.reader.shuffle(share(paddle.dataset.mnist.train()), buf_size=8192), batch_size=BATCH)
    trainer.train(reader=reader, event_handler=event_handler, num_passes=PASSES)


if __name__ == "__main__":
    main()
