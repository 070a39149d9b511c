"""`paddlecloud.AsyncClient` against the real embedded server."""

import asyncio
import os

import pytest
from embedded import ENDLESS, LIMIT_SECONDS, ONE_TRAINER, home, package  # noqa: F401

import paddlecloud
from paddlecloud import errors


def run(work):
    return asyncio.run(asyncio.wait_for(work, LIMIT_SECONDS))


def test_many_calls_run_at_once(home):  # noqa: F811
    async def ask():
        async with paddlecloud.AsyncClient() as client:
            return await asyncio.gather(*(client.whoami_get() for _ in range(20)))

    answers = run(ask())
    assert len(answers) == 20 and len({answer.user for answer in answers}) == 1


def test_a_job_is_submitted_followed_and_waited_for(home, package):  # noqa: F811
    folder = package("for i in range(3): print('pass', i)")

    async def train():
        client = paddlecloud.AsyncClient()
        submitted = await client.job_submit(folder, name="aio", **ONE_TRAINER)
        logs = client.job_logs(submitted.id, follow=True)
        lines = [line async for line in logs if line.stream == "output"]
        return lines, logs.end, (await client.job_wait(submitted.id)).job

    lines, end, job = run(train())
    assert lines == ["pass 0", "pass 1", "pass 2"]
    assert end.status == job.status == "Succeeded"


def test_a_wait_leaves_the_loop_free_and_can_be_cancelled(home, package):  # noqa: F811
    folder = package(ENDLESS)

    async def train():
        client = paddlecloud.AsyncClient()
        submitted = await client.job_submit(folder, name="aio-endless", grace=1, **ONE_TRAINER)
        logs = client.job_logs(submitted.id, follow=True)
        while await anext(logs) != "up":
            pass
        left = asyncio.ensure_future(client.job_wait(submitted.id))
        kept = asyncio.ensure_future(client.job_wait(submitted.id))
        assert (await client.job_get(submitted.id)).job.status == "Running"
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert not kept.done()
        await client.job_kill(submitted.id)
        return (await kept).job.status

    assert run(train()) == "Killed"


def test_a_reader_that_is_cancelled_loses_no_line(home, package):  # noqa: F811
    folder = package("print('before', flush=True)\nopen('gate').read()\nprint('after')\n")
    gate = home / "gate"
    os.mkfifo(gate)
    program = folder / "train.py"
    program.write_text(program.read_text().replace("'gate'", repr(str(gate))))

    async def train():
        client = paddlecloud.AsyncClient()
        submitted = await client.job_submit(folder, name="aio-gate", **ONE_TRAINER)
        logs = client.job_logs(submitted.id, follow=True)
        seen = []
        while "before" not in seen:
            seen.append(await anext(logs))
        reader = asyncio.ensure_future(anext(logs))
        await asyncio.wait([reader], timeout=0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await asyncio.to_thread(lambda: open(gate, "w").close())
        return [line async for line in logs if line.stream == "output"]

    assert run(train()) == ["after"]


def test_refusals_are_the_same_exceptions(home):  # noqa: F811
    async def ask():
        await paddlecloud.AsyncClient().job_get("no-such-job")

    with pytest.raises(errors.NotFoundError) as found:
        run(ask())
    assert (found.value.code, found.value.error) == (404, "not-found")
