"""The Python of the documents, typed as it is printed there.

Three changes are allowed: Python 3 (`pickle` for `cPickle`), `#` for `//` before a comment, and imports that are left
out there. Each program runs in a Python of its own, in an empty folder, with PaddlePaddle beside it or without.
"""

import hashlib
import pickle
import textwrap

import pytest

ROWS = 50

# Beside the snippet, never in it: the data set's file and its sum, which is that of a file nobody may pass on.
HOUSING = """
import paddle.v2.dataset.uci_housing as _housing
_housing.MD5 = {md5!r}
"""

CONVERT = """
import paddle.v2.dataset as dataset
dataset.common.convert(output_path = "./dataset",
                reader = dataset.uci_housing.train(),
                line_count = 10,
                name_prefix = "uci_housing_train")
"""

RECORDIO_READER = """
import pickle
import recordio
import glob
import sys
def recordio_reader(filepath, parallelism, trainer_id):
    # sample filepath as "/pfs/dlnel/home/yanxu05@baidu.com/dataset/uci_housing/uci_housing_train*"
    def reader():
        if trainer_id >= parallelism:
            sys.stdout.write("invalied trainer_id: %d\\n" % trainer_id)
            return
        files = glob.glob(filepath)
        files.sort()
        my_file_list = []
        for idx, f in enumerate(files):
            if idx % parallelism == trainer_id:
                my_file_list.append(f)

        for fn in my_file_list:
            r = recordio.reader(fn)
            while True:
                d = r.read()
                if not d:
                    break
                yield pickle.loads(d)

    return reader
"""

PUBLIC_DATASET = """
import os
import paddle.v2.dataset.common as common
TRAIN_FILES_PATTERN = os.path.join(common.DATA_HOME,
                                   "uci_housing/train-*.pickle")
def train():
    return common.cluster_files_reader(
        TRAIN_FILES_PATTERN,
        trainer_count = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1")),
        trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0")))
"""

SPLIT = """
import paddle.v2.dataset.uci_housing as uci_housing
import paddle.v2.dataset.common as common
common.split(reader = uci_housing.train(),   # Your reader instance
            line_count = 500,       # line count for each file
            suffix = "./uci_housing/train-%05d.pickle")              # filename suffix for each file, must contain %05d
"""

SPLIT_MARSHAL = """
import marshal
import paddle.v2.dataset.uci_housing as uci_housing
import paddle.v2.dataset.common as common
{reader}
common.split(reader = uci_housing.train(),   # Your reader instance
            line_count = 500,       # reader iterator count for each file
            suffix="./uci_housing/train-%05d.pickle",              # filename suffix for each file
            dumper=marshal.dump)      # using pickle.dump instead of the default function: cPickle.dump
"""

CLUSTER_READER = """
import os
import paddle.v2.dataset.common as common

dc = os.getenv("PADDLE_CLOUD_CURRENT_DATACENTER")

def train():
  return common.cluster_files_reader(
    "/pfs/%s/public/dataset/uci_housing/train-*.pickle" % dc,
    trainer_count = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS")),
    train_id = int(os.getenv("PADDLE_INIT_TRAINER_ID"))
  )
"""

CLUSTER_READER_MARSHAL = """
import os, marshal
import paddle.v2.dataset.common as common
dc = os.getenv("PADDLE_CLOUD_CURRENT_DATACENTER")
def train():
    return common.cluster_files_reader(
      "/pfs/%s/public/dataset/uci_housing/train-*.pickle" % dc,
      trainer_count = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS")),
      train_id = int(os.getenv("PADDLE_INIT_TRAINER_ID")),
      loader = marshal.load
    )
"""

DATASET_FROM_READER = """
def dataset_from_reader(filename, reader):
    with open(filename, "w") as fn:
        for batch_id, batch_data in enumerate(reader()):
            batch_data_str = [str(d) for d in batch_data]
            fn.write(",".join(batch_data_str))
            fn.write("\\n")
"""

DIST_READER = """
def dist_reader(filename, trainers, trainer_id):
    def dist_reader_creator():
        with open (filename) as f:
            cnt = 0
            for line in f:
                cnt += 1
                if cnt % trainers == trainer_id:
                    csv_data = [int(cell) for cell in line.split(",")]
                    yield tuple(csv_data)
    return dist_reader_creator
"""

PADDLE_JOB = """
import paddle.job as job
paddle_job=job.PaddleJob(
    pservers=3,
    runtime_image="yancey1989/paddle-job",
    job_name="paddle-job",
    namespace="yanxu",
    use_gpu=False,
    cpu_num=3,
    trainer_package_path="/example/word2vec",
    entry_point="python train.py",
    cephfs_volume=job.CephFSVolume(
        monitors_addr="172.19.32.166:6789"
    ))
"""

# A worker's own `/pfs` is only there in a worker; examples/ has these readers for jobs, which e2e submits.
WITHOUT_PFS = """
import glob as _glob
_real = _glob.glob
_glob.glob = lambda pattern, **more: _real(pattern.replace("/pfs/dc1/public/dataset", "."), **more)
"""


@pytest.fixture
def housing(tmp_path):
    """Prepares the file of the data set and returns what stands before a snippet that reads it."""
    text = "\n".join(" ".join(f"{(row * 7 + column) % 11}.{column}" for column in range(14)) for row in range(ROWS))
    (tmp_path / "home" / "uci_housing").mkdir(parents=True)
    (tmp_path / "home" / "uci_housing" / "housing.data").write_text(text)
    return HOUSING.format(md5=hashlib.md5(text.encode()).hexdigest())


@pytest.fixture
def typed(run_python, tmp_path):
    """Runs what was typed, then what looks at it."""

    def run(*parts, **environment):
        program = "\n".join(textwrap.dedent(part) for part in parts)
        return run_python(program, DATA_HOME=str(tmp_path / "home"), **environment)

    return run


def test_converted_data_is_read_by_the_recordio_reader(typed, housing, tmp_path):
    typed(housing, CONVERT)
    names = sorted(path.name for path in (tmp_path / "dataset").iterdir())
    assert names == [f"uci_housing_train-{number:05d}-of-00004" for number in range(4)]
    look = """
    for trainer in range(4):
        samples = list(recordio_reader("./dataset/uci_housing_train*", 3, trainer)())
        print(len(samples), *{(len(x), len(y)) for x, y in samples})
    """
    assert typed(RECORDIO_READER, look).splitlines() == [
        "20 (13, 1)",
        "10 (13, 1)",
        "10 (13, 1)",
        "invalied trainer_id: 3",
        "0",
    ]


def test_split_data_is_read_by_each_trainer(typed, housing, tmp_path):
    typed(housing, SPLIT)
    assert [path.name for path in (tmp_path / "uci_housing").iterdir()] == ["train-00000.pickle"]
    typed(housing, SPLIT.replace("500", "7"))  # Fewer lines for each, so that there are files for all trainers.
    assert len(list((tmp_path / "uci_housing").iterdir())) == 6
    look = "print(len(list(train()())))"
    shares = [
        typed(
            WITHOUT_PFS,
            CLUSTER_READER,
            look,
            PADDLE_CLOUD_CURRENT_DATACENTER="dc1",
            PADDLE_INIT_NUM_GRADIENT_SERVERS="4",
            PADDLE_INIT_TRAINER_ID=str(trainer),
        )
        for trainer in range(4)
    ]
    assert [int(share) for share in shares] == [14, 12, 7, 7]


def test_a_public_data_set_is_read_from_data_home(typed, tmp_path):
    folder = tmp_path / "home" / "uci_housing"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"train-{number:05d}.pickle").write_bytes(pickle.dumps([number, number]))
    assert typed(PUBLIC_DATASET, "print(list(train()()))") == "[0, 0, 1, 1, 2, 2]\n"
    alone = {"PADDLE_INIT_NUM_GRADIENT_SERVERS": "2", "PADDLE_INIT_TRAINER_ID": "1"}
    assert typed(PUBLIC_DATASET, "print(list(train()()))", **alone) == "[1, 1]\n"


def test_marshal_writes_and_reads_plain_values(typed, tmp_path):
    plain = "uci_housing.train = lambda: lambda: iter([([1.5, 2.5], [3.5])] * 3)"
    typed(SPLIT_MARSHAL.format(reader=plain))
    assert [path.name for path in (tmp_path / "uci_housing").iterdir()] == ["train-00000.pickle"]
    environment = {
        "PADDLE_CLOUD_CURRENT_DATACENTER": "dc1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "1",
        "PADDLE_INIT_TRAINER_ID": "0",
    }
    read = typed(WITHOUT_PFS, CLUSTER_READER_MARSHAL, "print(list(train()()))", **environment)
    assert read == "[([1.5, 2.5], [3.5]), ([1.5, 2.5], [3.5]), ([1.5, 2.5], [3.5])]\n"


def test_marshal_would_store_arrays_wrongly_so_it_is_refused(typed, housing):
    """The one snippet that does not run as printed: what it wrote could never be read back as it was."""
    snippet = textwrap.indent(SPLIT_MARSHAL.format(reader=""), "    ")
    printed = typed(housing, "try:\n" + snippet + "\nexcept TypeError as error:\n    print(error)")
    assert "marshal" in printed and "ndarray" in printed


def test_a_dumper_and_a_loader_of_ones_own_are_called_as_described(typed, tmp_path):
    program = """
    import json
    import paddle.v2.dataset.common as common

    def dumper(obj, file):
        file.write(json.dumps(obj).encode())

    def loader(f):
        return json.load(f)

    common.split(reader = lambda: iter(range(5)), line_count = 2, suffix = "./part-%05d.json", dumper=dumper)
    read = common.cluster_files_reader("./part-*.json", trainer_count = 1, trainer_id = 0, loader = loader)
    print(list(read()))
    """
    assert typed(program) == "[0, 1, 2, 3, 4]\n"


def test_a_data_set_from_a_reader_is_shared_out_by_lines(typed):
    look = """
    dataset_from_reader("train.csv", lambda: iter((number, number + 1) for number in range(10)))
    print(*(len(list(dist_reader("train.csv", 3, trainer)())) for trainer in range(3)))
    print(next(dist_reader("train.csv", 3, 1)()))
    """
    assert typed(DATASET_FROM_READER, DIST_READER, look) == "3 4 3\n(0, 1)\n"


def test_the_job_is_made_as_typed(typed):
    look = "print(paddle_job.job_name, paddle_job.pservers, paddle_job.trainers, paddle_job.cephfs_volume.mount_path)"
    assert typed(PADDLE_JOB, look) == "paddle-job 3 3 /mnt/cephfs\n"


def test_every_name_can_be_the_first_import(run_python):
    for statement in [
        "import paddle.v2.dataset as dataset",
        "import paddle.v2.dataset.uci_housing as uci_housing",
        "import paddle.v2.dataset.common as common",
        "import paddle.job as job",
        "from paddle import job",
        "import recordio",
    ]:
        assert run_python(statement) == ""
