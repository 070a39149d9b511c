"""`paddlecloud.Client` against the real embedded server."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone

import pytest
from embedded import ENDLESS, LIMIT_SECONDS, ONE_TRAINER, home, package  # noqa: F401

import paddlecloud
from paddlecloud import errors
from paddlecloud.job import PaddleJob


@pytest.fixture
def client(home):  # noqa: F811
    return paddlecloud.Client()


def run_to_end(client, folder, **fields):
    submitted = client.job_submit(folder, **{**ONE_TRAINER, **fields})
    return client.job_wait(submitted.id, timeout=LIMIT_SECONDS).job


def up(client, folder, **fields):
    """A job that runs until it is killed, and says so."""
    submitted = client.job_submit(folder, **{**ONE_TRAINER, "grace": 1, **fields})
    with client.job_logs(submitted.id, follow=True) as lines:
        assert any(line == "up" for line in lines)
    return submitted


def test_asking_whether_the_server_is_embedded_starts_none(home, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("PADDLECLOUD_HOME", str(tmp_path))
    assert paddlecloud.Client().is_embedded
    assert not list(tmp_path.iterdir())


def test_without_a_configuration_the_embedded_server_is_started(client):
    assert client.is_embedded
    assert client.datacenter == "local"
    server = client.server_get()
    assert server.embedded and server.engine == "local"
    assert server.started <= datetime.now(timezone.utc)
    assert client.whoami_get().home.startswith("/pfs/local/home/")
    assert {row.resource for row in client.quota_get()} >= {"cpu", "memory", "gpu"}
    assert {row.user for row in client.quota_get(all_users=True)} == {client.whoami_get().user}
    client.ping()


def test_a_job_runs_and_its_log_is_complete(client, package):  # noqa: F811
    program = "import sys\nprint('one', flush=True)\nprint('two', file=sys.stderr)\nsys.stdout.buffer.write(b'\\xff\\n')\nprint('no end', end='')"
    submitted = client.job_submit(package(program), name="talks", **ONE_TRAINER)
    assert submitted.id.startswith("j_") and submitted.engine == "local"
    with client.job_logs("talks", follow=True) as logs:
        lines = list(logs)
    said = [line for line in lines if line.stream == "output"]
    assert said == ["one", "two", "\ufffd", "no end"]
    assert said[2].raw == b"\xff"
    assert {line.role for line in lines} == {"trainer"}
    assert all(submitted.job.submitted <= line.time for line in said)
    assert logs.end.status == "Succeeded" and logs.end.id == submitted.id
    detail = client.job_get("talks")
    assert detail.job.status == "Succeeded" and detail.job.is_final
    assert [worker.exit_code for worker in detail.workers] == [0]
    assert detail.events
    assert list(client.job_logs("talks", lines=1, since=timedelta(hours=1)))[-1] == "no end"


def test_lists_are_paged_and_hide_what_has_ended(client, package):  # noqa: F811
    folder = package("pass")
    for name in ("page-a", "page-b"):
        assert run_to_end(client, folder, name=name).status == "Succeeded"
    assert client.jobs_list(name="page-a").jobs == ()
    first = client.jobs_list(all=True, limit=1)
    assert first.next
    second = client.jobs_list(all=True, limit=1, after=first.next)
    assert [job.name for job in first.jobs + second.jobs] == ["page-b", "page-a"]


def test_a_failed_job_says_why(client, package):  # noqa: F811
    job = run_to_end(client, package("raise SystemExit('no luck')"), name="fails")
    assert job.status == "Failed"
    why = client.job_why("fails")
    assert why.first_failure.worker.exit_code == 1
    assert any("no luck" in line for line in why.first_failure.last_lines)
    again = client.job_rerun("fails")
    assert again.id != job.id
    assert client.job_wait(again.id, timeout=LIMIT_SECONDS).job.status == "Failed"


def test_the_same_key_makes_one_job(client, package):  # noqa: F811
    folder = package("pass")
    first = client.job_submit(folder, name="once", key="k-1", **ONE_TRAINER)
    assert client.job_submit(folder, name="once", key="k-1", **ONE_TRAINER).id == first.id


def test_a_dry_run_starts_nothing(client, package):  # noqa: F811
    assert client.job_submit(package("pass"), name="dry", dry_run=True, **ONE_TRAINER).id == ""
    with pytest.raises(errors.NotFoundError):
        client.job_get("dry")


# Leaves what looks like a checkpoint, and prints that of the run it continues.
CHECKPOINTS = """
import os
own = f"output/checkpoints/{os.environ['PADDLECLOUD_ATTEMPT'].partition('.')[0]}"
os.makedirs(own)
open(f"{own}/10", "w").write(f"of {own}")
resumed = os.environ.get("PADDLE_PS_RESUME")
if resumed:
    print(resumed, open(f"{os.environ['PADDLE_PS_RESUME_OUTPUT']}/checkpoints/{resumed}/10").read())
"""


def test_a_run_is_resumed_by_its_name_its_id_or_as_the_last(client, package):  # noqa: F811
    folder = package(CHECKPOINTS)
    with_server = {"pservers": 1, "pscpu": "20m", "psmemory": "64Mi"}
    first = run_to_end(client, folder, name="begun", **with_server)
    assert first.resumed_from is None
    for resume in ("begun", "its id", "last"):
        again = run_to_end(client, folder, resume=first.id if resume == "its id" else resume, **with_server)
        assert (again.status, again.resumed_from) == ("Succeeded", first.id)
        assert f"{first.id} of output/checkpoints/{first.id}" in list(client.job_logs(again.id))
        first = again
    job = PaddleJob(
        job_name="more", entry_point="python3 train.py", trainer_package_path=folder, resume=first.id, client=client, **with_server
    )
    job.submit()
    assert client.job_wait("more", timeout=LIMIT_SECONDS).job.resumed_from == first.id


def test_a_run_that_cannot_be_resumed_is_refused(client, package):  # noqa: F811
    folder = package("pass")
    assert run_to_end(client, folder, name="no-servers").status == "Succeeded"
    with_server = {**ONE_TRAINER, "pservers": 1}
    with pytest.raises(errors.ConflictError, match="had no parameter servers"):
        client.job_submit(folder, resume="no-servers", **with_server)
    with pytest.raises(errors.NotFoundError, match="no-such-run"):
        client.job_submit(folder, resume="no-such-run", **with_server)
    with pytest.raises(errors.BadRequestError, match="`resume` needs parameter servers"):
        client.job_submit(folder, resume="last", **ONE_TRAINER)
    again = PaddleJob(
        job_name="again", entry_point="true", trainer_package_path=folder, pservers=1, resume="no-servers", client=client
    )
    with pytest.raises(errors.ConflictError, match="had no parameter servers"):
        again.submit()


def test_refusals_carry_code_name_message_and_hints(client, package):  # noqa: F811
    with pytest.raises(errors.NotFoundError) as found:
        client.job_get("no-such-job")
    assert (found.value.code, found.value.error) == (404, "not-found")
    assert "no-such-job" in found.value.message
    assert isinstance(found.value, LookupError)

    folder = package(ENDLESS)
    submitted = up(client, folder, name="taken")
    with pytest.raises(errors.NameTakenError) as found:
        client.job_submit(folder, name="taken", **ONE_TRAINER)
    assert found.value.code == 409 and found.value.hints
    assert f"hint: {found.value.hints[0]}" in str(found.value)
    copy = pickle.loads(pickle.dumps(found.value))
    assert type(copy) is errors.NameTakenError
    assert (copy.code, copy.error, copy.message, copy.hints) == (
        found.value.code,
        found.value.error,
        found.value.message,
        found.value.hints,
    )
    client.job_kill(submitted.id)

    with pytest.raises(errors.BadRequestError) as found:
        client.job_submit(folder, **{**ONE_TRAINER, "memory": "much"})
    assert "much" in found.value.message


def test_mistakes_are_found_before_anything_is_sent(client, tmp_path):
    with pytest.raises(TypeError, match="colour"):
        client.job_submit(tmp_path, colour="red")
    with pytest.raises(ValueError, match="timeout"):
        client.job_wait("last", timeout=-1)
    with pytest.raises(errors.PackageError, match="there is no such folder"):
        client.job_submit(tmp_path / "nowhere", **ONE_TRAINER)
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.PackageError, match="is empty"):
        client.job_submit(tmp_path / "empty", **ONE_TRAINER)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "main.py").write_text("")
    with pytest.raises(errors.PackageError, match="there is no `train.py` in the package") as found:
        client.job_submit(tmp_path / "other", **ONE_TRAINER)
    assert "commands run in the package's folder" in found.value.hints[0]
    with pytest.raises(TypeError, match="endpoint"):
        paddlecloud.Client(username="me", password="x")
    with pytest.raises(ValueError, match="ftp"):
        paddlecloud.Client("ftp://nowhere")


def test_a_home_and_credentials_are_not_sent(client, home, package):  # noqa: F811
    with pytest.raises(errors.PackageError, match="it is your home folder"):
        client.job_submit(home, **ONE_TRAINER)
    with pytest.raises(errors.PackageError, match="it is the root of the file system"):
        client.job_submit("/", **ONE_TRAINER)
    folder = package("", name="keys")
    (folder / ".env").write_text("PASSWORD=1")
    (folder / "key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    planned = client.job_submit(folder, dry_run=True, **ONE_TRAINER)
    assert "may be inside: `.env`, the private key `key`; `!FILE` in `.paddleignore`" in planned.notes[0]


def test_an_unreachable_server_has_its_own_error(home):  # noqa: F811
    with pytest.raises(errors.UnreachableError) as found:
        paddlecloud.Client(f"unix:{home}/no.sock").ping()
    assert isinstance(found.value, ConnectionError) and found.value.code is None


def test_the_configuration_is_paddlectls(home, tmp_path, client):  # noqa: F811
    socket = client.endpoint
    config = tmp_path / "config"
    config.write_text(
        f"datacenters:\n- name: here\n  endpoint: {socket}\n- name: there\n  endpoint: example.org\n"
        "current-datacenter: here\n"
    )
    named = paddlecloud.Client(config=config)
    assert named.datacenter == "here" and not named.is_embedded
    assert named.whoami_get() == client.whoami_get()
    assert paddlecloud.Client(config=config, datacenter="there").endpoint == "https://example.org"
    with pytest.raises(errors.ConfigError) as found:
        paddlecloud.Client(config=config, datacenter="hare").ping()
    assert found.value.hints == ("did you mean `here`?",)
    config.write_text("datacenters:\n- name: x\n  username: [your user name]\n")
    with pytest.raises(errors.ConfigError, match="line 3 .*placeholder"):
        paddlecloud.Client(config=config).ping()


def test_other_threads_run_while_one_waits(client, package):  # noqa: F811
    submitted = up(client, package(ENDLESS), name="waited-for")
    ends = []
    waiter = threading.Thread(target=lambda: ends.append(client.job_wait(submitted.id).job.status))
    waiter.start()
    assert client.job_wait(submitted.id, timeout=0).job.status == "Running"
    assert client.job_kill("waited-for").ending == 1
    waiter.join(LIMIT_SECONDS)
    assert ends == ["Killed"]
    assert client.workers_list("waited-for")[0].status == "Killed"


def _user_of(client, answers):
    answers.put(client.whoami_get().user)


def test_a_client_works_after_a_fork(client):
    mine = client.whoami_get().user
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_user_of, args=(client, answers))
    child.start()
    assert answers.get(timeout=LIMIT_SECONDS) == mine
    child.join(LIMIT_SECONDS)
    assert child.exitcode == 0
    assert client.whoami_get().user == mine


@pytest.mark.parametrize("kind", [paddlecloud.Client, paddlecloud.AsyncClient])
def test_a_pickled_client_keeps_its_address(kind, tmp_path):
    given = kind("http://127.0.0.1:1", username="ada", password="secret", datacenter="here")
    copy = pickle.loads(pickle.dumps(given))
    assert type(copy) is kind and copy._address == given._address
    configured = pickle.loads(pickle.dumps(kind(config=tmp_path / "config", datacenter="there")))
    assert (configured._address["config"], configured._address["datacenter"]) == (tmp_path / "config", "there")


def test_a_client_is_sent_to_the_workers_of_a_pool(client):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_home_of, (client,)) == (client.whoami_get().home, True)


def _home_of(client):
    home = client.whoami_get().home
    return home, client.files.exists(home)


def test_ctrl_c_ends_a_wait(client, package):  # noqa: F811
    submitted = up(client, package(ENDLESS), name="left")
    program = (
        "import paddlecloud, signal\n"
        # As in a terminal; what runs in the background inherits that the key is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "client = paddlecloud.Client()\n"
        "client.ping()\n"
        "print('waiting', flush=True)\n"
        f"client.job_wait({submitted.id!r})\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ, text=True
    )
    try:
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        _, words = child.communicate(timeout=LIMIT_SECONDS)
    finally:
        child.kill()
    assert "KeyboardInterrupt" in words
    assert client.job_get("left").job.status == "Running"
    client.job_kill("left", remove=False)


def test_a_server_that_was_stopped_is_started_again(client):
    first = client.server_get().pid
    by_address = paddlecloud.Client(client.endpoint)
    client.server_stop()
    with pytest.raises(errors.UnreachableError):
        by_address.ping()
    assert client.server_get().pid != first


def test_a_followed_log_outlives_its_server(client, home, package):  # noqa: F811
    gate = home / "gate"
    os.mkfifo(gate)
    folder = package(f"print('before', flush=True)\nopen({str(gate)!r}).read()\nprint('after')\n")
    submitted = client.job_submit(folder, name="outlives", **ONE_TRAINER)
    first = client.server_get().pid
    with client.job_logs(submitted.id, follow=True) as logs:
        said = [next(line for line in logs if line == "before")]
        client.server_stop()
        gate.write_text("")
        said += [line for line in logs if line.stream == "output"]
    assert said == ["before", "after"]
    assert logs.end.status == "Succeeded"
    assert client.server_get().pid != first


def test_pruning_says_what_it_would_remove(client, package):  # noqa: F811
    job = run_to_end(client, package("pass"), name="old")
    assert job.id in client.jobs_prune(older_than=0, dry_run=True).removed
    assert client.job_get(job.id).job.name == "old"
