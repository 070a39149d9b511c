"""The names of the documents beside PaddlePaddle and without it.

The same tests run in both environments: HAS_PADDLE says in which one this is.
"""

import importlib.metadata
import os
import subprocess
import sys

import pytest

HAS_PADDLE = any(dist.name.lower() == "paddlepaddle" for dist in importlib.metadata.distributions())
SITE = os.path.dirname(os.path.dirname(__import__("recordio").__file__))

without_paddle = pytest.mark.skipif(HAS_PADDLE, reason="PaddlePaddle is installed here")
with_paddle = pytest.mark.skipif(not HAS_PADDLE, reason="PaddlePaddle is not installed here")


def test_the_wheel_has_no_folder_paddle():
    files = [str(file) for file in importlib.metadata.files("paddlecloud")]
    assert "paddlecloud-compat.pth" in files
    assert not [file for file in files if file.startswith("paddle/")]


def test_the_wheel_says_what_it_is_and_under_which_terms():
    about = importlib.metadata.metadata("paddlecloud")
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Description-Content-Type"].startswith("text/markdown") and "paddlectl submit" in about.get_payload()
    assert {url.partition(",")[0] for url in about.get_all("Project-URL")} >= {"Repository", "Documentation"}
    files = importlib.metadata.files("paddlecloud")
    (terms,) = [file for file in files if file.name == "LICENSE"]
    assert "Apache License" in terms.read_text()


@pytest.mark.parametrize(
    "statement",
    [
        "import paddle.v2.dataset as dataset; dataset.common.convert; dataset.uci_housing.train",
        "import paddle.v2.dataset.common as common; common.split",
        "import paddle.v2.dataset.uci_housing as uci_housing; uci_housing.train",
        "import paddle.v2.dataset.imikolov as imikolov; imikolov.build_dict",
        "from paddle.v2.dataset.common import convert",
        "from paddle.v2 import reader, batch; reader.shuffle",
        "import paddle.v2 as paddle; paddle.reader.creator.recordio; paddle.batch",
        "import paddle.v2.reader.decorator as decorator; decorator.buffered",
        "import importlib; importlib.import_module('paddle.v2.dataset.common').DATA_HOME",
        "import importlib.util; assert importlib.util.find_spec('paddle.v2.dataset.common')",
        "import paddle.v2.dataset.common; paddle.v2.dataset.common.convert",
        "import paddle.job as job; job.PaddleJob, job.CephFSVolume",
        "from paddle import job; job.PaddleJob",
        "from paddle import v2 as paddle; paddle.dataset.common",
        "from paddle import batch, v2; batch is v2.batch",
        "def inside():\n  from paddle import job\n  return job\ninside().PaddleJob",
        "; ".join(f"name_{n} = {n!r}" for n in range(300)) + "; from paddle import job; job.PaddleJob",
    ],
)
def test_names_are_importable_as_typed(run_python, statement):
    assert run_python(statement) == ""


def test_every_form_of_import_gives_the_same_module(run_python):
    program = """
import paddle.v2.dataset as dataset
import paddle.v2.dataset.common as common
import paddle.v2 as v2
assert dataset.common is common is v2.dataset.common
assert common.convert.__module__ == "paddle.v2.dataset.common"
import paddle.v2
assert paddle.v2 is v2
"""
    run_python(program)


@without_paddle
@pytest.mark.parametrize("before", ["", "import recordio, paddlecloud.data\n"])
def test_programs_that_probe_for_paddle_find_none(run_python, before):
    program = before + """
import importlib.util, sys
assert importlib.util.find_spec("paddle") is None
assert "paddle" not in sys.modules
try:
    import paddle
except ModuleNotFoundError as error:
    assert error.name == "paddle"
else:
    raise AssertionError("paddle was found")
try:
    import paddle.nn
except ModuleNotFoundError as error:
    assert error.name == "paddle"
else:
    raise AssertionError("paddle.nn was found")
try:
    from paddle import nn
except ModuleNotFoundError as error:
    assert error.name == "paddle"
else:
    raise AssertionError("paddle was found")
assert "paddle" not in sys.modules
"""
    run_python(program)


@without_paddle
def test_a_function_that_also_takes_our_names_does_not_fool_a_probe(run_python):
    program = """
import sys

def probe():
    try:
        import paddle
    except ModuleNotFoundError:
        return "not there"
    from paddle import job

assert probe() == "not there" and "paddle" not in sys.modules
from paddle import job
assert probe() is None
"""
    run_python(program)


@without_paddle
def test_the_stand_in_says_what_it_is(run_python):
    program = """
import paddle.v2 as v2
import paddle
assert paddle.batch is v2.batch
assert not hasattr(paddle, "__version__") and not hasattr(paddle, "Tensor")
try:
    paddle.nn
except AttributeError as error:
    print(error)
try:
    import paddle.nn
except ModuleNotFoundError as error:
    print(error)
"""
    assert run_python(program).splitlines() == [
        "module 'paddle' has no attribute 'nn': PaddlePaddle is not installed; "
        "paddlecloud contains only `paddle.v2`, `paddle.job` and `paddle.batch`",
        "No module named 'paddle.nn'",
    ]


@pytest.mark.parametrize("before", ["", "import paddle.v2.dataset\n"])
def test_einops_is_not_fooled(run_python, before):
    pytest.importorskip("einops")
    program = before + """
import einops, numpy
print(einops.rearrange(numpy.zeros((2, 3)), "a b -> b a").shape)
"""
    assert run_python(program) == "(3, 2)\n"


@without_paddle
def test_a_paddle_found_by_a_later_finder_is_not_hidden(run_python):
    program = """
import importlib.machinery, sys

class Editable:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "paddle":
            return importlib.machinery.ModuleSpec(name, Loader, is_package=True)

class Loader:
    create_module = staticmethod(lambda spec: None)
    exec_module = staticmethod(lambda module: setattr(module, "real", True))

sys.meta_path.append(Editable)
import paddle.v2
assert paddle.real
"""
    run_python(program)


@with_paddle
def test_the_real_paddle_stays_untouched(run_python):
    program = """
import paddle
before = set(dir(paddle))
assert "paddlecloud" not in paddle.__file__
import paddle.v2.dataset.common as common
assert "paddlecloud" in common.__file__
assert set(dir(paddle)) - before <= {"v2"}
assert paddle.to_tensor([1.0, 2.0]).sum().item() == 3.0
assert "paddlecloud" not in paddle.dataset.__file__ and "paddlecloud" not in paddle.reader.__file__
"""
    run_python(program)


@pytest.mark.parametrize("flags", [(), ("-S",)])
def test_compat_installs_the_finder_if_no_pth_is_read(run_python, tmp_path, flags):
    """As with `pip install --target` and PYTHONPATH: the folder is on the path, its `.pth` files are not read."""
    target = tmp_path / "target"
    target.mkdir()
    for name in ["paddlecloud", "recordio", "numpy", "numpy.libs"]:
        if os.path.exists(os.path.join(SITE, name)):
            os.symlink(os.path.join(SITE, name), target / name)
    program = """
import sys
import paddlecloud.compat
import paddlecloud.compat
assert sum(finder.__name__ == "PaddleFinder" for finder in sys.meta_path if isinstance(finder, type)) == 1
import paddle.v2.dataset.common as common
print(common.__name__)
"""
    printed = run_python(program, flags=flags, PYTHONPATH=str(target))
    assert printed == "paddle.v2.dataset.common\n"


def test_starting_python_loads_next_to_nothing(run_python):
    program = """
import sys
print(sorted(name for name in sys.modules if name.startswith(("paddlecloud", "numpy", "recordio"))))
"""
    assert run_python(program) == "['paddlecloud', 'paddlecloud._finder']\n"


def test_an_installed_foreign_recordio_is_named(tmp_path):
    foreign = tmp_path / "site-packages"
    (foreign / "recordio-0.1.7.dist-info").mkdir(parents=True)
    done = _import_recordio(PYTHONPATH=str(foreign))
    assert f"`{foreign}/recordio-0.1.7.dist-info` is another package with a module `recordio`" in done
    assert "pip uninstall recordio" in done


def test_a_foreign_recordio_that_shadows_ours_is_named(tmp_path):
    (tmp_path / "recordio.py").write_text("reader = None\n")
    done = _import_recordio("import recordio, paddlecloud.compat", PYTHONPATH=str(tmp_path))
    assert f"`{tmp_path}/recordio.py` is another package with a module `recordio`" in done


def test_without_a_foreign_recordio_nothing_is_printed():
    assert _import_recordio() == ""


def _import_recordio(program="import recordio", **environment):
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stderr


@without_paddle
def test_a_package_index_of_names_is_complete(run_python):
    program = """
import paddlecloud
assert paddlecloud.RecordDataset.__module__ == "paddlecloud.data"
print(paddlecloud.__version__)
try:
    paddlecloud.nothing
except AttributeError as error:
    print(error)
"""
    version = importlib.metadata.version("paddlecloud")
    assert run_python(program).splitlines() == [version, "module 'paddlecloud' has no attribute 'nothing'"]
