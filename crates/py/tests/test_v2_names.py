"""`paddle.v2` without computing: everything here also runs where PaddlePaddle is not installed."""

import importlib.metadata
import io
import struct
import tarfile

import numpy as np
import pytest

import paddle.v2 as paddle

HAS_PADDLE = any(dist.name.lower() == "paddlepaddle" for dist in importlib.metadata.distributions())

# What the public programs from 2017 use, other than data sets.
USED = """
init batch infer trainer.SGD parameters.create event.EndIteration event.EndPass
reader.decorator.buffered trainer.SGD parameters.Parameters.from_tar parameters.Parameters.init_from_tar inference.Inference
layer.data layer.fc layer.concat layer.embedding layer.table_projection layer.cos_sim layer.pooling layer.lstmemory
layer.square_error_cost layer.classification_cost layer.addto layer.batch_norm layer.dropout layer.img_conv layer.img_pool layer.crf
layer.crf_decoding layer.mixed layer.full_matrix_projection layer.recurrent_group layer.memory layer.gru_step layer.StaticInput
layer.first_seq layer.last_seq layer.max_id layer.regression_cost layer.mse_cost layer.cross_entropy_cost
networks.simple_img_conv_pool networks.sequence_conv_pool networks.img_conv_group networks.simple_gru networks.simple_attention
networks.simple_lstm networks.bidirectional_lstm layer.beam_search layer.GeneratedInput
pooling.Max pooling.Avg pooling.Sum activation.Linear activation.Relu activation.Sigmoid activation.Softmax activation.Tanh
data_type.dense_vector data_type.integer_value data_type.integer_value_sequence data_type.sparse_binary_vector
attr.Param attr.Extra attr.ParamAttr attr.ExtraLayerAttribute optimizer.Momentum optimizer.Adam optimizer.Adamax optimizer.AdaGrad
optimizer.DecayedAdaGrad optimizer.AdaDelta optimizer.RMSProp optimizer.L2Regularization optimizer.ModelAverage
dataset.common.convert dataset.common.split dataset.common.cluster_files_reader dataset.uci_housing.train dataset.uci_housing.test
dataset.mnist.train dataset.mnist.test dataset.imdb.train dataset.imdb.test dataset.imdb.word_dict dataset.imikolov.build_dict
dataset.imikolov.train dataset.imikolov.test dataset.cifar.train10 dataset.cifar.test10 dataset.conll05.get_dict
dataset.conll05.get_embedding dataset.conll05.test dataset.wmt14.train dataset.wmt14.gen dataset.wmt14.get_dict dataset.wmt14.model
dataset.movielens.train dataset.movielens.test dataset.movielens.get_movie_title_dict dataset.movielens.max_job_id
dataset.movielens.max_movie_id dataset.movielens.max_user_id dataset.movielens.movie_categories dataset.movielens.movie_info
dataset.movielens.user_info
evaluator.sum evaluator.auc evaluator.classification_error topology.Topology reader.shuffle reader.buffered reader.creator.cloud_reader
""".split()


@pytest.mark.parametrize("name", USED)
def test_names_of_the_programs_exist(name):
    found = paddle
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)


def test_importing_and_describing_a_network_loads_no_paddlepaddle(run_python):
    program = """
import sys
import paddle.v2 as paddle
x = paddle.layer.data('x', paddle.data_type.dense_vector(3))
cost = paddle.layer.square_error_cost(paddle.layer.fc(x, 1), paddle.layer.data('y', paddle.data_type.dense_vector(1)))
parameters = paddle.parameters.create(cost)
assert parameters.get('___fc_layer_0__.w0').shape == (3, 1)
assert 'paddlecloud.legacy.kernels' not in sys.modules
"""
    run_python(program)


@pytest.mark.skipif(HAS_PADDLE, reason="PaddlePaddle is installed here")
def test_training_without_paddlepaddle_says_what_to_install():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(1))
    cost = paddle.layer.square_error_cost(paddle.layer.fc(x, 1), x)
    with pytest.raises(RuntimeError, match=r"^test_v2_names.py:\d+: .*pip install paddlepaddle"):
        paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())


@pytest.mark.parametrize(
    "name, hint",
    [
        ("layer.hsigmoid", "hsigmoid_loss"),
        ("layer.ctc", "ctc_loss"),
        ("networks.lstmemory_group", "simple_lstm"),
        ("fluid", "import paddle"),
    ],
)
def test_other_names_of_2017_say_what_to_use_instead(name, hint):
    module, _, last = name.rpartition(".")
    with pytest.raises(AttributeError, match=hint):
        getattr(getattr(paddle, module) if module else paddle, last)


@pytest.mark.parametrize(
    "statement, hint",
    [
        ("from paddle.v2.plot import Ploter", r"`paddle.v2.plot` of 2017 is not supported: .*matplotlib"),
        ("import paddle.v2.fluid as fluid", "import paddle"),
        ("from paddle.v2.dataset import sentiment", "imdb"),
        ("from paddle.trainer.config_parser import parse_config", "--job=test"),
        ("from py_paddle import swig_paddle", "paddle.v2"),
    ],
)
def test_other_modules_of_2017_say_what_to_use_instead(statement, hint):
    with pytest.raises(ModuleNotFoundError, match=hint):
        exec(statement)


def test_a_name_that_never_existed_is_named_with_its_line_and_the_nearest():
    with pytest.raises(AttributeError, match=r"^test_v2_names.py:\d+: .* has no attribute 'fcc'; did you mean `fc`"):
        paddle.layer.fcc  # noqa: B018
    with pytest.raises(AttributeError, match="; it has AggregateLevel, .*, fc, .*, trans_full_matrix_projection$"):
        paddle.layer.zzz  # noqa: B018
    assert not hasattr(paddle.layer, "zzz")


def test_default_names_are_those_of_2017(run_python):
    program = """
import paddle.v2 as paddle
ids = paddle.layer.data('ids', paddle.data_type.integer_value_sequence(10))
label = paddle.layer.data('label', paddle.data_type.integer_value(2))
word = paddle.layer.embedding(ids, 8)
lstm = paddle.networks.simple_lstm(word, 4)
out = paddle.layer.fc(paddle.layer.pooling(lstm), 2, act=paddle.activation.Softmax())
cost = paddle.layer.classification_cost(out, label)
print(word.name, out.name, cost.name)
print(*paddle.parameters.create(cost).names())
"""
    assert run_python(program).splitlines() == [
        "__embedding_0__ __fc_layer_0__ __classification_cost_0__",
        "___embedding_0__.w0 ___lstm_0___transform.w0 ___lstm_0__.w0 ___lstm_0__.wbias ___fc_layer_0__.w0 ___fc_layer_0__.wbias",
    ]


def shapes(layer):
    parameters = paddle.parameters.create(layer)
    return [parameters.get_shape(name) for name in parameters.names()]


def sequence(name, size):
    return paddle.layer.data(name, paddle.data_type.dense_vector_sequence(size))


def test_recurrent_layers_have_the_parameters_of_2017():
    """7 × size: four gates and three peepholes; blocks for the GRU; two more rows for the CRF."""
    assert shapes(paddle.layer.lstmemory(sequence("a", 20))) == [(5, 5, 4), (1, 35)]
    assert shapes(paddle.layer.grumemory(sequence("b", 15))) == [(5, 15), (1, 15)]
    tags = paddle.layer.data("tags", paddle.data_type.integer_value_sequence(7))
    assert shapes(paddle.layer.crf(sequence("c", 7), tags)) == [(9, 7)]


def test_pooling_rounds_its_output_up_and_convolution_down():
    image = paddle.layer.data("image", paddle.data_type.dense_vector(3 * 32 * 32), height=32, width=32)
    pooled = paddle.layer.img_pool(image, pool_size=3, stride=2)
    assert (pooled.image.height, pooled.image.width) == (16, 16)
    conv = paddle.layer.img_conv(image, filter_size=3, num_filters=2, stride=2)
    assert (conv.image.height, conv.image.width) == (15, 15)


def test_defaults_are_tanh_for_fc_and_relu_for_convolutions():
    image = paddle.layer.data("picture", paddle.data_type.dense_vector(64))
    assert paddle.layer.fc(image, 2).activation == "tanh"
    assert paddle.layer.img_conv(image, 3, 2).activation == "relu"


def test_initial_values_follow_the_attributes():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(400))
    uniform = paddle.attr.Param(name="uniform", initial_min=2.0, initial_max=3.0)
    normal = paddle.attr.Param(name="normal", initial_mean=5.0, initial_std=0.5)
    layers = [paddle.layer.fc(x, 100, param_attr=attr, bias_attr=False) for attr in (uniform, normal, "smart")]
    parameters = paddle.parameters.create(layers)
    assert parameters["uniform"].min() >= 2 and parameters["uniform"].max() <= 3 and parameters["uniform"].std() > 0.2
    assert abs(parameters["normal"].mean() - 5) < 0.02 and abs(parameters["normal"].std() - 0.5) < 0.02
    assert abs(parameters["smart"].std() - 1 / 20) < 0.002


def test_a_tar_has_2017s_layout_and_comes_back():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(3))
    parameters = paddle.parameters.create(
        paddle.layer.fc(x, 2, name="out", param_attr=paddle.attr.Param(learning_rate=2.0))
    )
    out = io.BytesIO()
    parameters.to_tar(out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        assert tar.getnames() == ["_out.w0", "_out.w0.protobuf", "_out.wbias", "_out.wbias.protobuf"]
        data = tar.extractfile("_out.w0").read()
        assert struct.unpack_from("<IIQ", data) == (0, 4, 6)
        assert np.array_equal(np.frombuffer(data, "<f4", offset=16).reshape(3, 2), parameters["_out.w0"])
        # name = 1, size = 2, learning_rate = 3 (a double), dims = 9
        about = tar.extractfile("_out.w0.protobuf").read()
        assert about.startswith(b"\x0a\x07_out.w0\x10\x06\x19" + struct.pack("<d", 2.0))
        assert b"\x48\x03\x48\x02" in about
    again = paddle.parameters.Parameters.from_tar(io.BytesIO(out.getvalue()))
    assert again.names() == parameters.names() and again.get_shape("_out.w0") == (3, 2)
    assert all(np.array_equal(again[name], parameters[name]) for name in parameters.names())


def test_init_from_tar_takes_what_fits_and_refuses_another_network():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(3))
    saved = paddle.parameters.create([paddle.layer.fc(x, 2, name="a"), paddle.layer.fc(x, 2, name="b")])
    saved["_a.w0"] = np.full((3, 2), 7, np.float32)
    out = io.BytesIO()
    saved.to_tar(out)
    one = paddle.parameters.create(paddle.layer.fc(x, 2, name="a"))
    one.init_from_tar(io.BytesIO(out.getvalue()))
    assert (one["_a.w0"] == 7).all()
    other = paddle.parameters.create(paddle.layer.fc(x, 5, name="a"))
    with pytest.raises(ValueError, match=r"`_a.w0` has shape \(3, 5\) here and \(3, 2\) in the file"):
        other.init_from_tar(io.BytesIO(out.getvalue()))


def test_a_text_file_for_to_tar_is_explained(tmp_path):
    parameters = paddle.parameters.create(paddle.layer.fc(paddle.layer.data("x", paddle.data_type.dense_vector(1)), 1))
    with open(tmp_path / "p.tar", "w") as file, pytest.raises(TypeError, match="'wb'"):
        parameters.to_tar(file)


def test_cut_off_files_are_refused():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(3))
    parameters = paddle.parameters.create(paddle.layer.fc(x, 2, name="out"))
    import paddlecloud.legacy.archive as archive

    out = io.BytesIO()
    parameters.serialize("_out.w0", out)
    with pytest.raises(archive.ArchiveError, match="6 values in 39 bytes"):
        archive.read_values(out.getvalue()[:-1], "_out.w0")
    about = archive.describe(parameters.spec("_out.w0"))
    for cut in (3, 12, len(about) - 1):  # inside the name, a number and the last field
        with pytest.raises(archive.ArchiveError, match="truncated"):
            archive.parse(about[:cut])


def test_errors_name_the_users_line():
    x = paddle.layer.data("x", paddle.data_type.dense_vector(3))
    y = paddle.layer.data("y", paddle.data_type.dense_vector(2))
    with pytest.raises(
        ValueError, match=r"test_v2_names.py:\d+: `square_error_cost`: the input has size 3 and the label 2"
    ):
        paddle.layer.square_error_cost(x, y)
    with pytest.raises(
        ValueError, match=r"test_v2_names.py:\d+: the input of `lstmemory` must have size a multiple of 4, not 3"
    ):
        paddle.layer.lstmemory(x)
    with pytest.raises(ValueError, match=r"test_v2_names.py:\d+: .*must be a layer, not 5"):
        paddle.layer.fc(5, 1)


def test_nested_sequences_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="`integer_value_sub_sequence`: nested sequences"):
        paddle.data_type.integer_value_sub_sequence(5)


def test_use_gpu_is_refused(monkeypatch):
    import paddlecloud.legacy.settings as settings

    monkeypatch.setattr(settings, "options", {})
    with pytest.raises(RuntimeError, match=r"^test_v2_names.py:\d+: .*CPUs only"):
        paddle.init(use_gpu=True)


def test_init_reads_the_jobs_environment(monkeypatch):
    import paddlecloud.legacy.settings as settings

    monkeypatch.setattr(settings, "options", {})
    monkeypatch.setenv("PADDLE_INIT_TRAINER_COUNT", "3")
    paddle.init()
    assert settings.options["trainer_count"] == "3"


def test_the_order_of_samples_is_that_of_the_data_layers():
    second = paddle.layer.data("z", paddle.data_type.dense_vector(1))
    first = paddle.layer.data("a", paddle.data_type.dense_vector(1))
    topology = paddle.topology.Topology(paddle.layer.square_error_cost(first, second))
    assert [name for name, _ in topology.data_type()] == ["z", "a"]
    assert topology.get_layer("a") is first and topology.get_layer("b") is None
