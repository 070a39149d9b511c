"""A training program as people write it: what mypy and pyright must see in it. It is checked, never run."""

import asyncio
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import paddle.job as job
import paddle.v2 as paddle
import paddle.v2.dataset.common as common
import recordio
from paddle import batch as top_level_batch
from paddle import job as the_same_job
from paddle.v2.dataset import imikolov, uci_housing
from typing_extensions import assert_type

import paddlecloud
from paddlecloud import errors, ps, views


def jobs() -> None:
    with paddlecloud.Client() as client:
        assert_type(client, paddlecloud.Client)
        submitted = client.job_submit("./my_package", entry="python train.py", parallelism=4)
        assert_type(submitted, views.Submitted)
        assert_type(client.jobs_list(all=True).jobs, tuple[views.Job, ...])
        for line in client.job_logs(submitted.id, follow=True):
            assert_type(line, views.LogLine)
        assert_type(client.files.read("/pfs/local/home/me/model", 0, 3), bytes)
        try:
            client.job_get("no-such-job")
        except errors.NotFoundError as error:
            assert_type(error.hints, tuple[str, ...])
        client.job_kill(1)  # type: ignore[arg-type]
        client.job_stop("hello")  # type: ignore[attr-defined]


async def jobs_with_asyncio() -> None:
    async with paddlecloud.AsyncClient() as client:
        caller, page = await asyncio.gather(client.whoami_get(), client.jobs_list())
        assert_type(caller, views.Caller)
        assert_type(page, views.JobPage)


def train() -> float:
    return 0.5


def job_of_the_documents() -> None:
    paddle_job = job.PaddleJob(job_name="first", entry_point="python train.py", trainers=2, cpu_nums=1)
    assert_type(paddle_job.wait(), str)
    assert_type(job.dist_train(train, paddle_job), float | job.PaddleJob)
    assert_type(paddle_job.submit(), views.Submitted)
    same: the_same_job.PaddleJob = paddle_job
    print(same)
    job.PaddleJob(job_name="first")  # type: ignore[call-arg]


def samples() -> Iterator[tuple[int, float]]:
    yield 1, 1.0


def data_of_the_documents() -> None:
    common.convert("./dataset", samples, line_count=10, name_prefix="squares")
    assert_type(common.DATA_HOME, str)
    shuffled = paddle.reader.shuffle(samples, 100)
    assert_type(shuffled, Callable[[], Iterator[tuple[int, float]]])
    assert_type(paddle.batch(shuffled, 10), Callable[[], Iterator[list[tuple[int, float]]]])
    assert_type(top_level_batch(shuffled, 10), Callable[[], Iterator[list[tuple[int, float]]]])
    assert_type(imikolov.build_dict(), dict[str, int])
    for features, price in uci_housing.train()():
        print(features.shape, price.shape)
    paddle.batch(samples, "ten")  # type: ignore[arg-type]


def records() -> None:
    with recordio.writer("train-00000") as out:
        out.write(b"one")
        out.write("one")  # type: ignore[arg-type]
    reader = recordio.reader("train-*")
    assert_type(reader.read(), bytes | None)
    assert_type(reader.read_batch(10, max_bytes=1 << 20), list[bytes])
    assert_type(reader[3], bytes)
    assert_type(reader.read_batch_buffer(10), tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]])


def parsed(record: bytes) -> tuple[int, float]:
    return len(record), 0.5


def parameters() -> None:
    session = ps.connect()
    values: npt.NDArray[np.float32] = np.zeros(3, np.float32)
    assert_type(session.pull("w"), npt.NDArray[np.float32])
    assert_type(session.pull(["w", "b"], averaged=True), dict[str, npt.NDArray[np.float32]])
    assert_type(session.pull(), dict[str, npt.NDArray[np.float32]])
    assert_type(session.pull("w", out=values), npt.NDArray[np.float32])
    assert_type(session.pull(["w"], out={"w": values}), dict[str, npt.NDArray[np.float32]])
    session.pull(7)  # type: ignore[call-overload]


def data_set() -> None:
    mine = paddlecloud.RecordDataset("train-*", decode=int, shuffle=True)
    assert_type(len(mine), int)
    for number in mine:
        assert_type(number, int)
    for record in paddlecloud.RecordDataset(["train-00000", "train-00001"]):
        assert_type(record, bytes)
    for pair in paddlecloud.RecordDataset("train-*", decode=parsed):
        assert_type(pair, tuple[int, float])
    paddlecloud.RecordDataset("train-*", decode="json")  # type: ignore[call-overload]
    assert_type(paddlecloud.__version__, str)
