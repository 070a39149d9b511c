"""What programs from 2017 cost compared with the same network written directly in PaddlePaddle 3.

    cargo xtask bench v2 [NAME…]      # digits word2vec conv lstm line remote

Figures are processor time per sample, all threads and feeding included; both sides take turns, and the median of the rounds counts. The direct LSTM is
`paddle.nn.LSTM`, which has no peepholes and pads its batch.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import paddle
import paddle.nn.functional as F
import paddle.v2 as v2

ROUNDS = 15
REMOTE_ROUNDS = 5
# For about five seconds of one trainer.
REPEATS = {"digits": 10, "word2vec": 30}
WORDS, SEED = 2000, 1


def batches(source, count, size, make):
    return [[make(source) for _ in range(size)] for _ in range(count)]


# Each side is a function that trains on one batch of samples.


def old(cost, optimizer):
    """The 2017 program's own loop."""
    trainer = v2.trainer.SGD(cost, v2.parameters.create(cost), optimizer, is_local=True)
    return lambda given: trainer.train(lambda: iter(given))


def new(network, optimizer, loss):
    """A plain loop of PaddlePaddle 3. Gradients are summed, as in 2017."""
    optimizer = optimizer(network.parameters())

    def train(given):
        for batch in given:
            cost = loss(network, batch)
            cost.backward()
            optimizer.step()
            optimizer.clear_grad()
            float(cost)

    return train


def label_of(batch, place):
    return paddle.to_tensor(np.array([sample[place] for sample in batch], np.int64))


def digits():
    source = np.random.default_rng(SEED)
    given = batches(source, 8, 128, lambda s: (s.normal(size=784).astype(np.float32), int(s.integers(10))))
    pixel = v2.layer.data("pixel", v2.data_type.dense_vector(784))
    label = v2.layer.data("label", v2.data_type.integer_value(10))
    seen = pixel
    for filters, channels in ((20, 1), (50, 20)):
        seen = v2.networks.simple_img_conv_pool(
            seen, 5, filters, 2, num_channel=channels, pool_stride=2, act=v2.activation.Relu()
        )
    cost = v2.layer.classification_cost(v2.layer.fc(seen, 10, act=v2.activation.Softmax()), label)
    ours = old(cost, v2.optimizer.Momentum(momentum=0.9, learning_rate=1e-4))
    network = paddle.nn.Sequential(
        paddle.nn.Conv2D(1, 20, 5), paddle.nn.ReLU(), paddle.nn.MaxPool2D(2, 2),
        paddle.nn.Conv2D(20, 50, 5), paddle.nn.ReLU(), paddle.nn.MaxPool2D(2, 2), paddle.nn.Flatten(), paddle.nn.Linear(800, 10),
    )  # fmt: skip

    def loss(network, batch):
        x = paddle.to_tensor(np.array([sample[0] for sample in batch]).reshape(-1, 1, 28, 28))
        return F.cross_entropy(network(x), label_of(batch, 1), reduction="sum")

    return ours, new(network, lambda p: paddle.optimizer.Momentum(1e-4, 0.9, p), loss), given


def word2vec():
    source = np.random.default_rng(SEED)
    given = batches(source, 20, 100, lambda s: tuple(int(word) for word in s.integers(0, WORDS, 5)))
    names = [v2.layer.data(f"w{number}", v2.data_type.integer_value(WORDS)) for number in range(5)]
    table = v2.attr.Param(name="_proj")
    context = v2.layer.concat([v2.layer.table_projection(word, 32, table) for word in names[:4]])
    hidden = v2.layer.fc(context, 256, act=v2.activation.Sigmoid())
    cost = v2.layer.classification_cost(v2.layer.fc(hidden, WORDS, act=v2.activation.Softmax()), names[4])
    ours = old(cost, v2.optimizer.Adam(learning_rate=1e-3))

    class Network(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table, self.hidden, self.out = paddle.nn.Embedding(WORDS, 32), paddle.nn.Linear(128, 256), paddle.nn.Linear(256, WORDS)

        def forward(self, words):
            return self.out(F.sigmoid(self.hidden(self.table(words).flatten(1))))

    def loss(network, batch):
        words = np.array(batch, np.int64)
        return F.cross_entropy(network(paddle.to_tensor(words[:, :4])), paddle.to_tensor(words[:, 4]), reduction="sum")

    return ours, new(Network(), lambda p: paddle.optimizer.Adam(1e-3, parameters=p), loss), given


def reviews(count=6):
    source = np.random.default_rng(SEED)
    return batches(source, count, 64, lambda s: (s.integers(0, WORDS, int(s.integers(20, 60))).tolist(), int(s.integers(2))))


def padded(batch):
    """Words by sample and place, and the lengths."""
    lengths = np.array([len(words) for words, _ in batch], np.int64)
    words = np.zeros((len(batch), lengths.max()), np.int64)
    for row, (each, _) in zip(words, batch):
        row[: len(each)] = each
    return paddle.to_tensor(words), lengths


def masked_max(x, lengths):
    """Not `paddle.max`: 3.3.1 takes 90 times as long for its gradient on CPUs."""
    alive = np.arange(x.shape[1])[None, :] < lengths[:, None]
    x = x + paddle.to_tensor(np.where(alive, 0.0, -1e9).astype(np.float32)).unsqueeze(-1)
    return paddle.take_along_axis(x, x.detach().argmax(axis=1, keepdim=True), 1).squeeze(1)


def conv():
    word = v2.layer.data("word", v2.data_type.integer_value_sequence(WORDS))
    label = v2.layer.data("label", v2.data_type.integer_value(2))
    embedded = v2.layer.embedding(word, 64)
    both = [v2.networks.sequence_conv_pool(embedded, context_len=width, hidden_size=64) for width in (3, 4)]
    cost = v2.layer.classification_cost(v2.layer.fc(both, 2, act=v2.activation.Softmax()), label)
    ours = old(cost, v2.optimizer.Adam(learning_rate=1e-3))

    class Network(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table, self.out = paddle.nn.Embedding(WORDS, 64), paddle.nn.Linear(128, 2)
            self.three = paddle.nn.Conv1D(64, 64, 3, padding=[1, 1])
            self.four = paddle.nn.Conv1D(64, 64, 4, padding=[2, 1])

        def forward(self, words, lengths):
            x = self.table(words).transpose([0, 2, 1])
            parts = [masked_max(F.tanh(each(x)).transpose([0, 2, 1]), lengths) for each in (self.three, self.four)]
            return self.out(paddle.concat(parts, axis=1))

    def loss(network, batch):
        return F.cross_entropy(network(*padded(batch)), label_of(batch, 1), reduction="sum")

    return ours, new(Network(), lambda p: paddle.optimizer.Adam(1e-3, parameters=p), loss), reviews()


def lstm():
    word = v2.layer.data("word", v2.data_type.integer_value_sequence(WORDS))
    label = v2.layer.data("label", v2.data_type.integer_value(2))
    fc = v2.layer.fc(v2.layer.embedding(word, 64), 256, act=v2.activation.Linear())
    seen = v2.layer.lstmemory(fc)
    for number in (2, 3):
        fc = v2.layer.fc([fc, seen], 256, act=v2.activation.Linear())
        seen = v2.layer.lstmemory(fc, reverse=number % 2 == 0)
    last = [v2.layer.pooling(each, v2.pooling.Max()) for each in (fc, seen)]
    cost = v2.layer.classification_cost(v2.layer.fc(last, 2, act=v2.activation.Softmax()), label)
    ours = old(cost, v2.optimizer.Adam(learning_rate=1e-3))

    class Network(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table, self.first = paddle.nn.Embedding(WORDS, 64), paddle.nn.Linear(64, 256)
            self.lstms = paddle.nn.LayerList(
                [paddle.nn.LSTM(256, 64, direction="forward") for _ in range(3)]
            )
            self.joints = paddle.nn.LayerList([paddle.nn.Linear(256 + 64, 256) for _ in range(2)])
            self.out = paddle.nn.Linear(256 + 64, 2)

        def forward(self, words, lengths):
            fc, sizes = self.first(self.table(words)), paddle.to_tensor(lengths)
            seen, _ = self.lstms[0](fc, sequence_length=sizes)
            for joint, each in zip(self.joints, self.lstms[1:]):
                fc = joint(paddle.concat([fc, seen], axis=-1))
                seen, _ = each(fc, sequence_length=sizes)
            return self.out(paddle.concat([masked_max(fc, lengths), masked_max(seen, lengths)], axis=1))

    def loss(network, batch):
        return F.cross_entropy(network(*padded(batch)), label_of(batch, 1), reduction="sum")

    return ours, new(Network(), lambda p: paddle.optimizer.Adam(1e-3, parameters=p), loss), reviews(3)


def line():
    source = np.random.default_rng(SEED)
    given = batches(source, 300, 10, lambda s: (s.normal(size=13).astype(np.float32), s.normal(size=1).astype(np.float32)))
    x, y = v2.layer.data("x", v2.data_type.dense_vector(13)), v2.layer.data("y", v2.data_type.dense_vector(1))
    cost = v2.layer.square_error_cost(v2.layer.fc(x, 1, act=v2.activation.Linear()), y)
    ours = old(cost, v2.optimizer.Momentum(learning_rate=1e-3))

    def loss(network, batch):
        x = paddle.to_tensor(np.array([sample[0] for sample in batch]))
        y = paddle.to_tensor(np.array([sample[1] for sample in batch]))
        return F.mse_loss(network(x), y, reduction="sum")

    return ours, new(paddle.nn.Linear(13, 1), lambda p: paddle.optimizer.SGD(1e-3, p), loss), given


CASES = {"digits": digits, "word2vec": word2vec, "conv": conv, "lstm": lstm, "line": line}


def compare(name):
    ours, direct, given = CASES[name]()
    samples = sum(map(len, given))
    times = {"2017": [], "direct": []}
    for side, train in (("2017", ours), ("direct", direct)):
        train(given[:2])  # warm up
    for _ in range(ROUNDS):
        for side, train in (("2017", ours), ("direct", direct)):
            before = time.process_time()
            train(given)
            times[side].append(time.process_time() - before)
    mine, theirs = (statistics.median(times[side]) for side in ("2017", "direct"))
    if name == "line":
        extra = (mine - theirs) / len(given) * 1e6
        print(f"{name:10} {mine / len(given) * 1e6:9.0f} {theirs / len(given) * 1e6:9.0f} µs/step   {extra:+.0f} µs (at most +150)")
    else:
        print(f"{name:10} {mine / samples * 1e6:9.0f} {theirs / samples * 1e6:9.0f} µs/sample {mine / theirs:6.2f} (at most 1.10)", flush=True)


def remote():
    """Two trainers and two servers beside one trainer: processor time of all processes per sample, and samples per second. Both sides take turns.

    Wall clock is from the end of the warm-up to the last batch. Trainers compute on one core each, so two of them need an idle core to be faster than one.
    """
    for name in REPEATS:
        alone, together = [], []
        for _ in range(REMOTE_ROUNDS):
            alone.append(started([(name, "0", "1", "")]))
            together.append(with_servers(name))
        cpu = statistics.median(two.cpu / one.cpu for one, two in zip(alone, together))
        rate = statistics.median(two.rate / one.rate for one, two in zip(alone, together))
        print(f"{name:10} 2 trainers and 2 servers use {cpu:.2f} times one trainer's time per sample (at most 1.15)")
        one, two = (statistics.median(each.rate for each in side) for side in (alone, together))
        print(f"{name:10} {one:.0f} and {two:.0f} samples/s: {rate:.2f} times (at least 1.50 on an idle machine)", flush=True)


class Cost(NamedTuple):
    """Processor seconds per sample, and samples per second."""

    cpu: float
    rate: float


def started(trainers, other_cpu=lambda: 0.0):
    """What trainers cost that run at once, without their start. `other_cpu` ends their servers and returns processor seconds."""
    running = [
        subprocess.Popen([sys.executable, __file__, "trainer", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for words in trainers
    ]
    samples, cpu, wall = zip(*(map(float, each.communicate()[0].splitlines()[-1].split()) for each in running))
    return Cost((sum(cpu) + other_cpu()) / sum(samples), sum(samples) / max(wall))


def with_servers(name):
    command = [sys.executable, __file__, "server"]
    servers = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for number in range(2)
    ]
    addresses = ",".join(server.stdout.readline().strip() for server in servers)
    trainers = [(name, str(number), "2", addresses) for number in range(2)]
    return started(trainers, lambda: sum(float(server.communicate("")[0].split()[-1]) for server in servers))


def trainer(name, number, trainers, addresses):
    if addresses:
        os.environ.update(PADDLE_PSERVERS_IP_PORT_LIST=addresses, PADDLE_PS_SECRET="bench")
        os.environ.update(PADDLE_INIT_TRAINER_ID=number, PADDLE_INIT_NUM_GRADIENT_SERVERS=trainers)
        globals()["old"] = _remote
    ours, _, given = CASES[name]()
    ours(given[:2])  # trainers of a job end it together
    given = given * REPEATS[name]
    cpu, wall = time.process_time(), time.monotonic()
    ours(given)
    print(sum(map(len, given)), time.process_time() - cpu, time.monotonic() - wall)


def _remote(cost, optimizer):
    machine = v2.trainer.SGD(cost, v2.parameters.create(cost), optimizer, is_local=False)
    return lambda given: machine.train(lambda: iter(given))


def server(number):
    from paddlecloud import _native

    print(_native.ps_serve(2, "bench", int(number), 2), flush=True)
    before = time.process_time()
    sys.stdin.read()
    print(time.process_time() - before)


def main(words):
    if words and words[0] == "trainer":
        return trainer(*words[1:])
    if words and words[0] == "server":
        return server(*words[1:])
    load = os.getloadavg()[0]
    print(f"load {load:.1f}, {os.cpu_count()} cores, PaddlePaddle {paddle.__version__}; 2017's program, written directly:")
    for name in words or [*CASES, "remote"]:
        remote() if name == "remote" else compare(name)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
