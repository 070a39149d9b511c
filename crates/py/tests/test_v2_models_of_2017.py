"""Models in the layout of 2017, built byte by byte from its documentation: none of our code writes them.

A parameter's file has 16 bytes before its values: 0, the bytes per value, and how many there are. `paddle train` saved a folder `pass-%05d` of such
files per pass. A tar of `paddle.v2` has them as members, each with a message ParameterConfig beside it.
"""

import io
import os
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest

import paddle.v2 as paddle

WORDS, SIZE = 5, 2


def raw(values, width=4):
    head = b"\x00\x00\x00\x00" + bytes([width, 0, 0, 0]) + bytes([values.size, 0, 0, 0, 0, 0, 0, 0])
    return head + struct.pack(f"<{values.size}{'f' if width == 4 else 'd'}", *values.ravel())


def config(name, size, dims=b"", rest=b""):
    """Tags are `field << 3 | wire type`: 0x0a is field 1 (name), 0x10 is field 2 (size)."""
    return b"\x0a" + bytes([len(name)]) + name.encode() + b"\x10" + bytes([size]) + dims + rest


# Field 3 learning_rate, 5 initial_mean and 6 initial_std as doubles, and 12 initial_smart, in the order in which protobuf wrote them around `dims`.
RATE = b"\x19" + struct.pack("<d", 0.5)
SPREAD = b"\x29" + struct.pack("<d", 0.0) + b"\x31" + struct.pack("<d", 0.44721359549995793)
# 10 device -1 takes ten bytes; 13 num_batches_regularization; 15 format; 16 sparse_remote_update; 19 para_id;
# 20 update_hooks {type "pruning", sparsity_ratio}; 22 sparse_update; 23 is_shared.
DEVICE = b"\x50" + b"\xff" * 9 + b"\x01"
HOOK = b"\xa2\x01\x12" + b"\x0a\x07pruning" + b"\x11" + struct.pack("<d", 0.6)
OTHERS = DEVICE + b"\x60\x01" + b"\x68\x01" + b"\x7a\x03csr" + b"\x80\x01\x01" + b"\x98\x01\x07" + HOOK + b"\xb0\x01\x01" + b"\xb8\x01\x01"


def model():
    draw = np.random.default_rng(2017)
    shapes = {
        "_words.w0": (WORDS, SIZE), "_lstm_transform.w0": (SIZE, 4 * SIZE), "_lstm.w0": (SIZE, 4 * SIZE), "_lstm.wbias": (7 * SIZE,),
        "_answer.w0": (SIZE, 3), "_answer.wbias": (3,),
    }  # fmt: skip
    return {name: draw.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def tar_of_2017(values, width=4):
    configs = {
        "_words.w0": config("_words.w0", 10, SPREAD + b"\x48\x05\x48\x02", OTHERS),
        "_lstm_transform.w0": config("_lstm_transform.w0", 16, b"\x48\x02\x48\x08"),
        # Three dimensions, here packed as a reader must also accept them.
        "_lstm.w0": config("_lstm.w0", 16, b"\x4a\x03\x02\x02\x04"),
        "_lstm.wbias": config("_lstm.wbias", 14, b"\x48\x01\x48\x0e"),
        "_answer.w0": config("_answer.w0", 6, RATE + b"\x48\x02\x48\x03"),
        "_answer.wbias": config("_answer.wbias", 3, b"\x48\x01\x48\x03"),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, about in configs.items():
            for member, content in ((name, raw(values[name], width)), (f"{name}.protobuf", about)):
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def network():
    words = paddle.layer.data("text", paddle.data_type.integer_value_sequence(WORDS))
    embedded = paddle.layer.embedding(words, SIZE, name="words")
    lstm = paddle.networks.simple_lstm(embedded, SIZE, name="lstm")
    return paddle.layer.fc(paddle.layer.last_seq(lstm), 3, act=paddle.activation.Softmax(), name="answer")


def answers(values, texts):
    """The network in numpy: candidate, input gate, forget gate, output gate; peepholes behind the four biases."""

    def sigma(x):
        return 1 / (1 + np.exp(-x))

    rows = []
    for text in texts:
        h = c = np.zeros(SIZE)
        bias = values["_lstm.wbias"].reshape(7, SIZE)
        for x in values["_words.w0"][text] @ values["_lstm_transform.w0"]:
            a, i, f, o = (x + h @ values["_lstm.w0"]).reshape(4, SIZE) + bias[:4]
            i, f = sigma(i + bias[4] * c), sigma(f + bias[5] * c)
            c = f * c + i * np.tanh(a)
            h = sigma(o + bias[6] * c) * np.tanh(c)
        power = np.exp(h @ values["_answer.w0"] + values["_answer.wbias"])
        rows.append(power / power.sum())
    return np.array(rows)


def test_a_tar_of_2017_has_the_shapes_and_settings_of_its_parameters():
    parameters = paddle.parameters.Parameters.from_tar(io.BytesIO(tar_of_2017(model())))
    shapes = {name: parameters.get_shape(name) for name in parameters.names()}
    assert shapes == {
        "_words.w0": (5, 2), "_lstm_transform.w0": (2, 8), "_lstm.w0": (2, 2, 4), "_lstm.wbias": (1, 14), "_answer.w0": (2, 3), "_answer.wbias": (1, 3),
    }  # fmt: skip
    words, answer = parameters.spec("_words.w0"), parameters.spec("_answer.w0")
    assert (words.is_sparse, words.is_smart, words.is_static, words.deviation) == (True, True, False, 0.44721359549995793)
    assert (answer.learning_rate, answer.is_sparse) == (0.5, False)


@pytest.mark.parametrize("width", [4, 8])
def test_a_model_of_2017_predicts(width):
    pytest.importorskip("paddle.nn")
    values, texts = model(), [[4], [0, 1], [3, 3, 2, 0, 4, 1, 2]]
    parameters = paddle.parameters.Parameters.from_tar(io.BytesIO(tar_of_2017(values, width)))
    found = paddle.infer(network(), parameters, [(text,) for text in texts])
    np.testing.assert_allclose(found, answers(values, texts), rtol=1e-5)

    fresh = paddle.parameters.create(network())
    fresh.init_from_tar(io.BytesIO(tar_of_2017(values, width)))
    np.testing.assert_array_equal(paddle.infer(network(), fresh, [(text,) for text in texts]), found)


CONFIG = """
from paddle.trainer_config_helpers import *

define_py_data_sources2(train_list=None, test_list='test.list', module='texts', obj='process')
settings(batch_size=2)
text = data_layer(name='text', size=5)
lstm = simple_lstm(input=embedding_layer(input=text, size=2, name='words'), size=2, name='lstm')
outputs(fc_layer(input=last_seq(input=lstm), size=3, act=SoftmaxActivation(), name='answer'))
"""

PROVIDER = """
from paddle.trainer.PyDataProvider2 import *

@provider(input_types={'text': integer_value_sequence(5)})
def process(settings, filename):
    with open(filename) as file:
        for line in file:
            yield {'text': [int(word) for word in line.split()]}
"""


def test_a_folder_that_paddle_train_saved_in_2017_predicts(tmp_path):
    pytest.importorskip("paddle.nn")
    values, texts = model(), [[4], [0, 1], [3, 3, 2, 0, 4, 1, 2]]
    saved = tmp_path / "output" / "pass-00007"
    saved.mkdir(parents=True)
    for name, each in values.items():
        (saved / name).write_bytes(raw(each))
    # What else lay there: the configuration and its name.
    (saved / "trainer_config.py").write_text(CONFIG)
    (saved / "path.txt").write_text("trainer_config.py")
    (tmp_path / "trainer_config.py").write_text(CONFIG)
    (tmp_path / "texts.py").write_text(PROVIDER)
    (tmp_path / "test.list").write_text("texts.txt")
    (tmp_path / "texts.txt").write_text("".join(" ".join(map(str, text)) + "\n" for text in texts))
    flags = ["--config=trainer_config.py", "--job=test", "--init_model_path=output/pass-00007", "--predict_output_dir=answers"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PADDLE", "TRAINING", "TRAINER"))}
    done = subprocess.run(
        [sys.executable, "-m", "paddlecloud.v1.train", *flags], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "answers" / "rank-00000").read_text().splitlines()
    found = np.array([[float(number) for number in line.rstrip(";").split()] for line in lines])
    np.testing.assert_allclose(found, answers(values, texts), rtol=1e-4)
