"""The command lines of the documents: flags, and the log that follows from them. Needs no PaddlePaddle."""

import re

import pytest

from paddlecloud.legacy import log
from paddlecloud.v1.configuration import ConfigError
from paddlecloud.v1.flags import Flags

# What a job's environment says, for a trainer of 200.
JOB = {
    "PADDLE_INIT_PORT": "7164",
    "PADDLE_INIT_NICS": "",
    "PADDLE_INIT_PORTS_NUM": "1",
    "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
    "PADDLE_INIT_NUM_PASSES": "1",
    "PADDLE_INIT_TRAINER_COUNT": "1",
    "PADDLE_INIT_USE_GPU": "0",
    "PADDLE_INIT_TRAINER_ID": "102",
    "PADDLE_INIT_PSERVERS": "172.17.29.47,172.17.28.244",
    "PADDLE_INIT_NUM_GRADIENT_SERVERS": "200",
}


def test_a_job_prints_the_command_line_of_the_documents():
    words = Flags(["--config=trainer_config.py"], JOB).words()
    assert sorted(words[1:]) == sorted(
        "--port=7164 --nics= --ports_num=1 --ports_num_for_sparse=1 --num_passes=1 --trainer_count=1 --saving_period=1 "
        "--log_period=20 --local=0 --config=trainer_config.py --use_gpu=0 --trainer_id=102 --save_dir= "
        "--pservers=172.17.29.47,172.17.28.244 --num_gradient_servers=200".split()
    )


def test_bare_paddle_train_reads_trainer_config():
    flags = Flags([], {})
    assert flags["config"] == "trainer_config.py" and flags.words()[1:] == []
    in_job = Flags([], JOB).words()[1:]
    assert in_job[:4] == ["--port=7164", "--nics=", "--ports_num=1", "--ports_num_for_sparse=1"]
    assert "--config=trainer_config.py" in in_job


def test_all_flags_of_the_documents_are_understood():
    typed = (
        "--nics=eth0 --port=7164 --ports_num=2 --comment=paddle_process_by_paddle "
        "--pservers=192.168.129.66,192.168.223.143,192.168.129.71 --ports_num_for_sparse=2 --config=./trainer_config.py "
        "--trainer_count=4 --num_passes=10 --use_gpu=0 --log_period=50 --dot_period=10 --saving_period=1 --local=0 --trainer_id=0 "
        "--save_dir=/home/jobpath/paddle-cluster-job/output"
    ).split()
    flags = Flags(typed, {})
    assert flags.words()[1:] == typed, "they are logged as typed"
    environment = {"CONF_PADDLE_GRADIENT_NUM": "3"}
    flags.publish(environment)
    assert environment["PADDLE_PSERVERS_IP_PORT_LIST"] == "192.168.129.66:7164,192.168.223.143:7164,192.168.129.71:7164"
    assert environment["PADDLE_INIT_NUM_GRADIENT_SERVERS"] == "3"


def test_flags_may_have_one_dash_and_a_value_behind_a_space():
    flags = Flags(["-config", "a.py", "--local", "--use_gpu=False", "--num_passes", "3"], {})
    assert (flags["config"], flags["local"], flags["use_gpu"], flags.number("num_passes")) == ("a.py", "1", "False", 3)
    assert Flags(["--nolocal", "--logtostderr", "--nouse_mkldnn"], {})["local"] == "0"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--jobs=train"], "unknown flag `--jobs`; did you mean `--job`?"),
        (["-num_pass", "3"], "unknown flag `--num_pass`; did you mean `--num_passes`?"),
        (["--gpu_ids=1"], "unknown flag `--gpu_ids`; did you mean `--gpu_id`?"),
        (["--qqq"], "unknown flag `--qqq`; the flags are --checkgrad_eps, --config, "),
        (["--save_only_one"], "`--save_only_one` of 2017 is not supported"),
        (["train"], "`train` is not a flag"),
        (["--job=sleep"], "`--job` must be train, test or checkgrad, not 'sleep'"),
        (["--num_passes=many"], "`--num_passes` must be a whole number, not 'many'"),
    ],
)
def test_wrong_flags_are_explained(words, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Flags(words, {})


def logged(capsys):
    """What was logged, behind time, thread and place."""
    return [line.split("] ", 1)[1] for line in capsys.readouterr().err.splitlines()]


def test_every_dense_port_is_logged(capsys):
    hosts = {"PADDLE_INIT_PSERVERS": "192.168.129.66,192.168.223.143", "PADDLE_INIT_PORTS_NUM": "2", "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "2"}
    log.servers(hosts, is_sparse=False)
    assert logged(capsys) == [
        "pserver 0 192.168.129.66:7164",
        "pserver 1 192.168.129.66:7165",
        "pserver 2 192.168.223.143:7164",
        "pserver 3 192.168.223.143:7165",
    ]


def test_sparse_updates_have_their_own_ports(capsys):
    log.servers({"PADDLE_INIT_PSERVERS": "10.1.9.3,10.1.32.9"}, is_sparse=True)
    assert logged(capsys) == [
        "pserver 0 10.1.9.3:7164",
        "pserver 1 10.1.32.9:7164",
        "pserver 0 10.1.9.3:7165",
        "pserver 1 10.1.32.9:7165",
    ]
