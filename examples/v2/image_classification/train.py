"""Classes of small pictures, by the two networks of the 2017 book. They are narrower here: the originals cost 0.1 CPU-seconds per picture.

    python prepare.py data
    DATA_HOME=data python train.py vgg
    DATA_HOME=data python train.py resnet

The same program trains alone and in a job with parameter servers.
"""

import os
import sys
import warnings

import paddle.v2 as paddle

TRAINER_ID = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
PASSES = int(os.getenv("PADDLE_INIT_NUM_PASSES", "4"))
BATCH = 50
FEEDING = {"image": 0, "label": 1}

warnings.filterwarnings("ignore", message=".*of the original archive")


def vgg_bn_drop(image):
    """Blocks of convolutions with batch normalization and dropout."""

    def block(input, filters, drop_rates, channels=None):
        return paddle.networks.img_conv_group(
            input=input,
            num_channels=channels,
            pool_size=2,
            pool_stride=2,
            conv_num_filter=[filters] * len(drop_rates),
            conv_filter_size=3,
            conv_act=paddle.activation.Relu(),
            conv_with_batchnorm=True,
            conv_batchnorm_drop_rate=drop_rates,
            pool_type=paddle.pooling.Max(),
        )

    seen = block(image, 8, [0.1, 0], 3)
    seen = block(seen, 16, [0.1, 0])
    seen = block(seen, 16, [0])
    hidden = paddle.layer.fc(
        input=paddle.layer.dropout(input=seen, dropout_rate=0.1), size=32, act=paddle.activation.Linear()
    )
    return paddle.layer.batch_norm(input=hidden, act=paddle.activation.Relu())


def resnet_cifar10(image, blocks=1):
    """Blocks whose result is added to what they got."""

    def convolve(input, filters, size, stride, padding, act, channels=None):
        seen = paddle.layer.img_conv(
            input=input,
            filter_size=size,
            num_channels=channels,
            num_filters=filters,
            stride=stride,
            padding=padding,
            act=paddle.activation.Linear(),
            bias_attr=False,
        )
        return paddle.layer.batch_norm(input=seen, act=act)

    def block(input, before, filters, stride):
        linear, relu = paddle.activation.Linear(), paddle.activation.Relu()
        seen = convolve(convolve(input, filters, 3, stride, 1, relu), filters, 3, 1, 1, linear)
        short = input if (before, stride) == (filters, 1) else convolve(input, filters, 1, stride, 0, linear)
        return paddle.layer.addto(input=[seen, short], act=relu)

    seen, before = convolve(image, 8, 3, 1, 1, paddle.activation.Relu(), 3), 8
    for filters, stride in ((8, 1), (16, 2), (16, 2)):
        for number in range(blocks):
            seen = block(seen, before, filters, stride if number == 0 else 1)
            before = filters
    return paddle.layer.img_pool(input=seen, pool_size=8, stride=1, pool_type=paddle.pooling.Avg())


NETWORKS = {"vgg": vgg_bn_drop, "resnet": resnet_cifar10}


def share(reader):
    def mine():
        for number, sample in enumerate(reader()):
            if number // 10 % TRAINERS == TRAINER_ID:
                yield sample

    return mine


def main(network):
    paddle.init(use_gpu=False, trainer_count=1)
    image = paddle.layer.data(name="image", type=paddle.data_type.dense_vector(3 * 32 * 32))
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
    out = paddle.layer.fc(input=NETWORKS[network](image), size=10, act=paddle.activation.Softmax())
    cost = paddle.layer.classification_cost(input=out, label=label)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(
        momentum=0.9,
        regularization=paddle.optimizer.L2Regularization(rate=0.0002 * BATCH),
        learning_rate=0.05 / BATCH / TRAINERS,
        learning_rate_decay_a=0.5,
        learning_rate_decay_b=3000,
        learning_rate_schedule="discexp",
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)

    def event_handler(event):
        if isinstance(event, paddle.event.EndPass) and TRAINER_ID == 0:
            result = trainer.test(reader=paddle.batch(paddle.dataset.cifar.test10(), batch_size=100), feeding=FEEDING)
            error = result.metrics["classification_error_evaluator"]
            print(f"pass {event.pass_id} test cost {result.cost:.4f} error {error:.4f}", flush=True)

    reader = paddle.batch(paddle.reader.shuffle(share(paddle.dataset.cifar.train10()), buf_size=5000), batch_size=BATCH)
    trainer.train(reader=reader, num_passes=PASSES, event_handler=event_handler, feeding=FEEDING)

    with open("inference_topology.pkl", "wb") as file:
        paddle.topology.Topology(layers=out).serialize_for_inference(file)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "vgg")
