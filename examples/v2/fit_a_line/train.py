"""The first program of the 2017 book: house prices by a linear model.

    python prepare.py data && DATA_HOME=data python train.py

The same program trains alone and in a job with parameter servers.
"""

import os
import warnings

import paddle.v2 as paddle

TRAINER_ID = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
PASSES = int(os.getenv("PADDLE_INIT_NUM_PASSES", "30"))

# The data is prepared by prepare.py, so it is not the original's.
warnings.filterwarnings("ignore", message=".*of the original archive")


def share(reader):
    """Every trainer takes its own samples."""

    def mine():
        for number, sample in enumerate(reader()):
            if number % TRAINERS == TRAINER_ID:
                yield sample

    return mine


def main():
    paddle.init(use_gpu=False, trainer_count=1)

    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(13))
    y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
    y_predict = paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear(), param_attr=paddle.attr.Param(name="w"))
    cost = paddle.layer.square_error_cost(input=y_predict, label=y)

    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(momentum=0, learning_rate=2e-3 / TRAINERS)
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)
    feeding = {"x": 0, "y": 1}

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 50 == 0:
            print(f"pass {event.pass_id} batch {event.batch_id} cost {event.cost:.4f}", flush=True)
        if isinstance(event, paddle.event.EndPass) and TRAINER_ID == 0 and (event.pass_id + 1) % 10 == 0:
            result = trainer.test(reader=paddle.batch(paddle.dataset.uci_housing.test(), batch_size=10), feeding=feeding)
            print(f"pass {event.pass_id} test cost {result.cost:.4f}", flush=True)
            os.makedirs("output", exist_ok=True)
            with open(f"output/params_pass_{event.pass_id}.tar", "wb") as file:
                parameters.to_tar(file)

    reader = paddle.batch(share(paddle.dataset.uci_housing.train()), batch_size=10)
    trainer.train(reader=reader, feeding=feeding, event_handler=event_handler, num_passes=PASSES)

    samples = list(paddle.dataset.uci_housing.test()())[:3]
    found = paddle.infer(output_layer=y_predict, parameters=parameters, input=[(features,) for features, _ in samples])
    for (_, price), predicted in zip(samples, found):
        print(f"price {price[0]:.2f}, predicted {predicted[0]:.2f}")


if __name__ == "__main__":
    main()
