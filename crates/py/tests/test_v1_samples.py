"""Where the samples of a v1 training come from: a provider that reads no file, and lists that give none."""

import re
import struct

import pytest
from test_v1 import start

# In the manner of the introduction to v0.9: the list has one blank line, and the provider makes up its samples.
CONFIG = """
from paddle.trainer_config_helpers import *

with open('empty.list', 'w') as f:
    f.writelines(' ')
define_py_data_sources2(train_list='empty.list', test_list=None, module='dataprovider', obj='process', args={})
settings(batch_size=10, learning_rate=0.05, learning_method=MomentumOptimizer())

height, weight = data_layer(name='height', size=1), data_layer(name='weight', size=1)
guess = fc_layer(input=height, size=1, act=LinearActivation(), param_attr=ParamAttr(name='slope'), bias_attr=ParamAttr(name='start'))
outputs(regression_cost(input=guess, label=weight))
"""

PROVIDER = """
import random
from paddle.trainer.PyDataProvider2 import *

@provider(input_types=[dense_vector(1), dense_vector(1)], use_seq=False)
def process(settings, input_file):
    source = random.Random(3)
    for _ in range(500):
        height = source.random()
        yield [height], [-1.5 * height + 0.7]
"""


@pytest.fixture
def package(tmp_path):
    (tmp_path / "trainer_config.py").write_text(CONFIG)
    (tmp_path / "dataprovider.py").write_text(PROVIDER)
    return tmp_path


def train(package):
    return start(package, "-m", "paddlecloud.v1.train", "--config=trainer_config.py", "--num_passes=5", "--save_dir=output")


def test_a_provider_that_reads_no_file_trains_on_its_samples(package):
    status, said = train(package)
    assert status == 0, said
    assert re.search(r"Pass=4 Batch=50 samples=500 ", said)
    last = package / "output" / "pass-00004"
    found = [struct.unpack_from("<f", (last / name).read_bytes(), 16)[0] for name in ("slope", "start")]
    assert found == pytest.approx([-1.5, 0.7], abs=0.01)


@pytest.mark.parametrize(
    "config, provider, why",
    [
        (CONFIG.replace("writelines(' ')", "writelines('')"), PROVIDER, "`empty.list` is empty; it must have one line per data file"),
        (CONFIG, PROVIDER.replace("range(500)", "range(0)"), "provider `dataprovider.process` yielded none for the 1 file of `empty.list`"),
    ],
)
def test_a_local_training_without_samples_fails(package, config, provider, why):
    (package / "trainer_config.py").write_text(config)
    (package / "dataprovider.py").write_text(provider)
    status, said = train(package)
    assert status == 1 and said.splitlines()[-1] == f"error: no sample to train with: {why}"
    assert not (package / "output").exists(), "a model that was never trained is not saved"
