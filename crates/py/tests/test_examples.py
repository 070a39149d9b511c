"""The readers of the documents, as the programs in examples/ that jobs run. Programs from 2017 are tested as jobs: e2e/tests/data/legacy.rs."""

import importlib.metadata
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "examples")


@pytest.fixture
def package(tmp_path, request):
    """A copy of the example, as a job has it."""
    return shutil.copytree(os.path.join(EXAMPLES, request.param), tmp_path / request.param)


def run(program, folder, *arguments, **environment):
    environment = {**os.environ, **environment}
    command = [sys.executable, program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shares(lines):
    """Samples and sums of what trainers printed."""
    found = [re.search(r"(\d+) samples, sum (\d+)", line).groups() for line in lines]
    return [int(count) for count, _ in found], sum(int(total) for _, total in found)


@pytest.mark.parametrize("package", ["recordio_reader"], indirect=True)
def test_recordio_reader_gives_each_file_to_one_trainer(package):
    assert run("prepare.py", package).splitlines()[-1] == "squares_train-00009-of-00010"
    printed = [
        run("train.py", package, PADDLE_INIT_NUM_GRADIENT_SERVERS="3", PADDLE_INIT_TRAINER_ID=str(trainer))
        for trainer in range(3)
    ]
    assert shares(printed) == ([35, 30, 30], sum(range(95)))


@pytest.mark.parametrize("package", ["recordio_reader"], indirect=True)
def test_recordio_reader_refuses_a_trainer_too_many(package):
    run("prepare.py", package)
    printed = run("train.py", package, PADDLE_INIT_NUM_GRADIENT_SERVERS="2", PADDLE_INIT_TRAINER_ID="2")
    assert printed.startswith("invalied trainer_id: 2\n")


@pytest.mark.parametrize("package", ["dist_reader"], indirect=True)
def test_dist_reader_gives_each_line_to_one_trainer(package):
    run("prepare.py", package)
    printed = [run("train.py", package, TRAINERS="3", TRAINER_ID=str(trainer)) for trainer in range(3)]
    assert shares(printed) == ([16, 17, 17], sum(range(50)))


def imikolov_archive(data_home):
    folder = data_home / "imikolov"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "simple-examples.tgz", "w:gz") as archive:
        for part, sentences in (("train", 60), ("valid", 20)):
            text = b"a b c d\n" * sentences
            info = tarfile.TarInfo(f"./simple-examples/data/ptb.{part}.txt")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))


@pytest.mark.parametrize("is_there", [True, False])
def test_imikolov_is_prepared_by_the_line_of_the_document(tmp_path, is_there):
    """As typed: in the repository's root, where `example` is another name of `examples`."""
    (tmp_path / "example").symlink_to(os.path.realpath(EXAMPLES))
    if is_there:
        imikolov_archive(tmp_path / "sets")
    # No server answers there, so a missing archive cannot be fetched.
    nowhere = dict.fromkeys(["https_proxy", "HTTPS_PROXY"], "http://127.0.0.1:9")
    search = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, **nowhere, "PATH": search, "DATA_HOME": str(tmp_path / "sets")}
    line = ["./example/word2vec/prepare.py"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert ("a generated text takes its place" in done.stderr) == (not is_there)
    train = (tmp_path / "data" / "train.csv").read_text().splitlines()
    assert all(len(line.split(",")) == 5 for line in train)
    # `<s> a b c d <e>` has two 5-grams.
    assert len(train) == (2 * 60 if is_there else 99_996)


@pytest.mark.parametrize("package", ["gen_train_list"], indirect=True)
def test_gen_train_list_lists_each_file_for_one_trainer(package, tmp_path):
    """A worker's own root is moved into the test's folder: names like /train.list are opened there."""
    run("prepare.py", package, str(tmp_path / "home"))
    launcher = """
import builtins, os, sys
root, home = sys.argv[1:]
real = builtins.open
builtins.open = lambda name, *rest: real(root + name if os.path.dirname(str(name)) == "/" else name, *rest)
sys.path.insert(0, ".")
import train
train.TRAIN_FILE_PATTERN = home + "/user001_space/part-*.gz"
train.TEST_FILE_PATTERN = home + "/user001_space_test/part-*.gz"
train.main()
"""
    (package / "launcher.py").write_text(launcher)
    printed = []
    for trainer in range(2):
        root = tmp_path / f"root-{trainer}"
        root.mkdir()
        (root / "trainer_id").write_text(f"{trainer}\n")
        (root / "trainer_count").write_text("2\n")
        printed += run("launcher.py", package, str(root), str(tmp_path / "home")).splitlines()
    assert printed == [
        "/train.list: part-00000.gz part-00002.gz part-00004.gz, 30 lines",
        "/test.list: part-00000.gz, 10 lines",
        "/train.list: part-00001.gz part-00003.gz, 20 lines",
        "/test.list: part-00001.gz, 10 lines",
    ]


with_paddle = pytest.mark.skipif(
    not any(dist.name.lower() == "paddlepaddle" for dist in importlib.metadata.distributions()),
    reason="PaddlePaddle is not installed here",
)


def train_v1(package, *flags):
    command = [sys.executable, "-m", "paddlecloud.v1.train", *flags]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


@with_paddle
@pytest.mark.parametrize("package", ["v1/quick_start"], indirect=True)
def test_the_quick_start_of_v1_trains_and_predicts(package):
    run("prepare.py", package)
    wrong = {}
    for network in ("emb", "cnn", "lstm"):
        said = train_v1(package, "--num_passes=5", f"--config_args=network={network}", f"--save_dir={network}")
        wrong[network] = float(re.findall(r"Test samples=800 .*classification_error_evaluator=(\S+)", said)[-1])
    assert wrong["cnn"] < 0.02 and wrong["lstm"] < 0.02 and wrong["emb"] > 0.4, wrong
    flags = ("--config_args=network=cnn,is_predict=1", "--init_model_path=cnn/pass-00004", "--predict_output_dir=answers")
    train_v1(package, "--job=test", *flags)
    answers = (package / "answers" / "rank-00000").read_text().splitlines()
    # The texts of both kinds take turns.
    right = sum(int(line.split(";")[0]) == number % 2 for number, line in enumerate(answers))
    assert len(answers) == 800 and right > 780
