"""Configurations and data providers of v1, as the documents start them."""

import os
import re
import struct
import subprocess
import sys

import pytest

pytest.importorskip("paddle.nn")

LIMIT_SECONDS = 300

# Click prediction in the manner of 2017: sparse ids, sparse updates, and a list of files without a final newline.
CONFIG = """
from paddle.trainer_config_helpers import *

dict_size = get_config_arg('dict_size', int, 50)
define_py_data_sources2(train_list='train.list', test_list='test.list', module='dataprovider', obj='process', args={'dict_size': dict_size})
settings(batch_size=20, learning_rate=0.1 / 20, learning_method=MomentumOptimizer(0.9), regularization=L2Regularization(1e-4))

features = data_layer(name='features', size=dict_size)
word = fc_layer(input=features, size=8, param_attr=ParamAttr(sparse_update=True), act=ReluActivation())
output = fc_layer(input=word, size=2, act=SoftmaxActivation())
label = data_layer(name='label', size=2)
outputs(classification_cost(input=output, label=label))
"""

PROVIDER = """
import random
from paddle.trainer.PyDataProvider2 import *

def hook(settings, dict_size, **kwargs):
    settings.input_types = {'features': sparse_binary_vector(dict_size), 'label': integer_value(2)}

@provider(init_hook=hook, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, filename):
    source = random.Random(filename)
    for _ in range(200):
        ids = source.sample(range(50), 4)
        # Whether more ids are even than odd: every id has its share in the answer.
        yield {'features': ids, 'label': int(sum(1 if i % 2 else -1 for i in ids) > 0)}
"""


@pytest.fixture
def package(tmp_path):
    (tmp_path / "trainer_config.py").write_text(CONFIG)
    (tmp_path / "dataprovider.py").write_text(PROVIDER)
    (tmp_path / "train.list").write_text("part-0\npart-1\npart-2")
    (tmp_path / "test.list").write_text("part-9")
    return tmp_path


def start(package, *command, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PADDLE", "TRAINING", "TRAINER"))}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=package,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def train(package, *flags):
    status, said = start(package, "-m", "paddlecloud.v1.train", *flags)
    assert status == 0, said
    return said


def errors(said):
    """What share of the test data was answered wrongly, pass by pass."""
    return [
        float(share) for share in re.findall(r"Test samples=\d+ cost=\S+ Eval: classification_error_evaluator=(\S+)", said)
    ]


def test_paddle_train_trains_tests_and_saves_each_pass(package):
    said = train(
        package,
        "--config=trainer_config.py",
        "--num_passes=6",
        "--log_period",
        "10",
        "--save_dir=output",
        "--use_gpu=False",
    )
    assert "] The input order is [features, label]" in said
    assert "] The output order is [__cost_0__]" in said
    assert re.search(
        r"^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ PyDataProvider2.cpp:243\] loading dataprovider dataprovider::process$",
        said,
        re.M,
    )
    assert re.search(
        r"\]  Batch=30 samples=600 AvgCost=\S+ CurrentCost=\S+ Eval: classification_error_evaluator=", said
    )
    assert re.search(r"\]  Pass=5 Batch=30 samples=600 AvgCost=\S+ Eval: ", said)
    assert re.search(r"Eval: classification_error_evaluator=\S+  CurrentEval: classification_error_evaluator=\S+ $", said, re.M)
    assert errors(said)[-1] < 0.1
    saved = package / "output" / "pass-00005"
    assert sorted(os.listdir(saved)) == [
        "___fc_layer_0__.w0",
        "___fc_layer_0__.wbias",
        "___fc_layer_1__.w0",
        "___fc_layer_1__.wbias",
        "done",
    ]
    assert struct.unpack_from("<IIQ", (saved / "___fc_layer_0__.w0").read_bytes()) == (0, 4, 400)


def test_a_saved_model_is_tested_and_trained_further(package):
    last = errors(train(package, "--num_passes=5", "--save_dir=output"))[-1]
    assert errors(train(package, "--job=test", "--init_model_path=output/pass-00004")) == [last]
    said = train(package, "--start_pass=5", "--num_passes=1", "--save_dir=output")
    assert " Pass=5 " in said and (package / "output" / "pass-00005" / "done").exists()


def test_a_model_of_another_network_is_refused_with_the_layers_line(package):
    train(package, "--num_passes=1", "--save_dir=output")
    saved = package / "output" / "pass-00000"
    (saved / "___fc_layer_0__.w0").write_bytes(struct.pack("<IIQ3f", 0, 4, 3, 1, 2, 3))
    line = r"error: trainer_config.py:\d+: layer `__fc_layer_0__`: "
    _, said = start(package, "-m", "paddlecloud.v1.train", f"--init_model_path={saved}")
    assert re.search(rf"{line}parameter `___fc_layer_0__.w0` has 3 values in `.*`, but this network needs 400; ", said), said
    (saved / "___fc_layer_0__.w0").unlink()
    _, said = start(package, "-m", "paddlecloud.v1.train", f"--init_model_path={saved}")
    assert re.search(rf"{line}`.*` has no parameter `___fc_layer_0__.w0`; ", said), said


def test_a_trainer_without_test_files_trains(package):
    """Where trainers share out the files, some have none to test with."""
    (package / "test.list").write_text("")
    said = train(package, "--num_passes=2")
    assert " Pass=1 " in said and errors(said) == []
    status, said = start(package, "-m", "paddlecloud.v1.train", "--job=test")
    assert status == 1 and "error: there is no sample to test with" in said


def test_a_configuration_started_by_python_trains(package):
    status, said = start(package, "trainer_config.py", PADDLE_INIT_NUM_PASSES="2", PADDLE_INIT_TRAINER_COUNT="1")
    assert status == 0, said
    assert said.count("classification_error_evaluator") >= 2 and " Pass=1 " in said


def test_arguments_reach_the_configuration(package):
    status, said = start(package, "-m", "paddlecloud.v1.train", "--config_args=dict_size=30", "--num_passes=1")
    assert status == 1
    assert re.search(
        r"error: data layer `features` \(trainer_config.py:\d+\): id \d+ of item \d+ must be at least 0 and below 30",
        said,
    )


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--config=other.py"], "there is no configuration `other.py`"),
        (["--jobs=train"], "unknown flag `--jobs`"),
        (["--use_gpu=1"], "`use_gpu` is on, but"),
        (["--init_model_path=nowhere"], "there is no folder `nowhere` with a model"),
    ],
)
def test_wrong_flags_are_explained(package, flags, message):
    status, said = start(package, "-m", "paddlecloud.v1.train", *flags)
    assert status == 1 and f"error: {message}" in said


def test_a_provider_without_types_is_explained(package):
    (package / "dataprovider.py").write_text(
        "from paddle.trainer.PyDataProvider2 import *\n@provider()\ndef process(settings, name):\n    yield 1\n"
    )
    (package / "trainer_config.py").write_text(CONFIG.replace(", args={'dict_size': dict_size}", ""))
    status, said = start(package, "-m", "paddlecloud.v1.train")
    assert status == 1 and "error: provider `dataprovider.process` has no `input_types`" in said


def behind_brackets(said):
    """Log lines behind time, thread and place."""
    return [line.split("] ", 1)[1] for line in said.splitlines() if re.match(r"I\d{4} |\[(INFO|WARNING) ", line)]


def test_the_log_has_the_documents_lines_in_their_order(package):
    said = train(package, "--config=trainer_config.py", "--num_passes=1", "--use_gpu=False", "--comment=paddle_process_by_paddle")
    lines = behind_brackets(said)
    assert lines[0].endswith("train.py --config=trainer_config.py --num_passes=1 --use_gpu=False --comment=paddle_process_by_paddle")
    assert lines[0].startswith("commandline: /")
    assert lines[1:10] == [
        "Calling runInitFunctions",
        "Call runInitFunctions done.",
        "The input order is [features, label]",
        "The output order is [__cost_0__]",
        "trainer mode: Normal",
        "loading dataprovider dataprovider::process",
        "loading dataprovider dataprovider::process",
        "Initing parameters..",
        "Init parameters done.",
    ]


def test_options_by_place_are_warned_about_once(package):
    config = CONFIG.replace("data_layer(name='label', size=2)", "data_layer('label', 2, 1, 1)").replace(
        "fc_layer(input=word, size=2, act=SoftmaxActivation())", "fc_layer(word, 2, SoftmaxActivation())"
    )
    (package / "trainer_config.py").write_text(config)
    assert behind_brackets(train(package, "--num_passes=1")).count("please use keyword arguments in paddle config.") == 1


def test_a_provider_logs_with_its_own_line(package):
    (package / "dataprovider.py").write_text(PROVIDER.replace("    settings.input_types", "    settings.logger.info('hook')\n    settings.input_types"))
    said = train(package, "--num_passes=1")
    assert len(re.findall(r"^\[INFO \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} dataprovider.py:6\] hook$", said, re.M)) == 2


def test_gradients_are_checked_by_finite_differences(package):
    said = train(package, "--job=checkgrad")
    found = re.findall(r"(___fc_layer_\d__.\w+) *step=.* true_delta=(\S+) +analytic_delta=(\S+) +diff=(\S+)", said.replace("true_delta", " true_delta"))
    assert [name for name, *_ in found] == ["___fc_layer_0__.w0", "___fc_layer_0__.wbias", "___fc_layer_1__.w0", "___fc_layer_1__.wbias"]
    assert all(float(off) < 0.05 and float(change) != 0 for _, _, change, off in found)


def test_a_wrong_gradient_fails_the_check(package):
    """Clipping errors makes the gradient another one than the cost's."""
    (package / "trainer_config.py").write_text(CONFIG.replace("act=ReluActivation()", "act=ReluActivation(), layer_attr=ExtraAttr(error_clipping_threshold=1e-3)"))
    status, said = start(package, "-m", "paddlecloud.v1.train", "--job=checkgrad")
    assert status == 1 and "***" in said


def test_predictions_are_written_line_by_line(package):
    train(package, "--num_passes=3", "--save_dir=output")
    (package / "test.list").write_text("part-9\n")
    (package / "trainer_config.py").write_text(
        CONFIG.replace("outputs(classification_cost(input=output, label=label))", "outputs([maxid_layer(output), output])").replace(
            "label = data_layer(name='label', size=2)", ""
        )
    )
    train(package, "--job=test", "--init_model_path=output/pass-00002", "--predict_output_dir=answers")
    lines = (package / "answers" / "rank-00000").read_text().splitlines()
    assert len(lines) == 200
    for line in lines:
        best, chances, rest = line.split(";")
        chances = [float(word) for word in chances.split(" ")]
        assert rest == "" and len(chances) == 2 and chances.index(max(chances)) == int(best)
    assert {line[0] for line in lines} == {"0", "1"}


def test_the_older_form_of_a_configuration_works(package):
    config = CONFIG.replace("settings(batch_size=20, learning_rate=0.1 / 20, learning_method=MomentumOptimizer(0.9), regularization=L2Regularization(1e-4))",
        "Settings(algorithm='sgd', batch_size=20, learning_rate=0.1 / 20, learning_method='momentum')\ndefault_momentum(0.9)\ndefault_decay_rate(1e-4)")
    config = config.replace("outputs(classification_cost(input=output, label=label))", "classification_cost(input=output, label=label, name='cost')\nOutputs('cost')\nInputs('features', 'label')")
    (package / "trainer_config.py").write_text(config)
    assert errors(train(package, "--num_passes=6"))[-1] < 0.1


@pytest.mark.parametrize(
    "before, after, message",
    [
        ("fc_layer(input=word", "fc_leyer(input=word", r"trainer_config.py:10: NameError: name 'fc_leyer' is not defined; did you mean `fc_layer`\?"),
        ("fc_layer(input=word", "hsigmoid(input=word", r"trainer_config.py:10: `hsigmoid` of 2017 is not supported: .*hsigmoid_loss"),
        ("outputs(", "print 'ready'\noutputs(", r"trainer_config.py:12: Missing parentheses.*paddlectl doctor --fix"),
        ("size=8, param_attr", "size=8, input=3, param_attr", r"trainer_config.py:9: .*keyword argument"),
        ("learning_method=MomentumOptimizer(0.9)", "learning_method='momentum'", r"trainer_config.py:6: `learning_method` must be"),
    ],
)
def test_mistakes_in_a_configuration_are_named_with_their_line(package, before, after, message):
    (package / "trainer_config.py").write_text(CONFIG.replace(before, after))
    status, said = start(package, "-m", "paddlecloud.v1.train", "--num_passes=1")
    assert status == 1 and re.search(f"^error: {message}", said, re.M), said
