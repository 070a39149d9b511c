"""`paddlecloud.Client` and `paddle.job` against a server that people share, with a password."""

import re
import subprocess

import pytest
from embedded import LIMIT_SECONDS, ONE_TRAINER, PROGRAM, home, package  # noqa: F401

import paddlecloud
from paddlecloud import errors

PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def shared(home):  # noqa: F811
    """The endpoint of a server on a port of its own, with one user."""
    password = home / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    config = home / "server.yaml"
    config.write_text(
        f"listen: 127.0.0.1:0\ndata: {home}/shared\ndatacenter: cloud\ninventory: {{cpu: 2, memory: 1Gi}}\n"
        f"users:\n- name: ada\n  password_file: {password}\n"
    )
    server = subprocess.Popen(
        ["paddlecloud-server", "--config", str(config)],
        executable=PROGRAM,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        ready = next(line for line in server.stdout if "ready" in line)
        yield re.search(r"127\.0\.0\.1:\d+", ready).group()
    finally:
        server.terminate()
        server.communicate(timeout=LIMIT_SECONDS)


def test_a_password_is_traded_for_a_token_that_is_kept(home, shared, tmp_path):  # noqa: F811
    client = paddlecloud.Client(shared, username="ada", password=PASSWORD)
    client.login()
    assert client.whoami_get().home == "/pfs/cloud/home/ada"
    assert client.endpoint == f"http://{shared}" and not client.is_embedded
    [token] = (home / ".paddle" / "tokens").iterdir()
    assert token.stat().st_mode & 0o777 == 0o600
    kept = paddlecloud.Client(shared, token=token.read_text().strip())
    assert kept.whoami_get().user == "ada"


def test_a_wrong_password_is_refused_and_never_shown(shared):
    with pytest.raises(errors.UnauthorizedError) as found:
        paddlecloud.Client(shared, username="ada", password="wrong-secret").login()
    assert found.value.code == 401
    assert "wrong-secret" not in str(found.value)


def test_only_administrators_may_list_all_users(shared):
    client = paddlecloud.Client(shared, username="ada", password=PASSWORD)
    for ask in (client.jobs_list, client.workers_list, client.quota_get):
        with pytest.raises(errors.ForbiddenError):
            ask(all_users=True)


def test_a_job_that_can_never_fit_is_refused(shared, package):  # noqa: F811
    client = paddlecloud.Client(shared, username="ada", password=PASSWORD)
    with pytest.raises(errors.TooBigError) as found:
        client.job_submit(package("pass"), **{**ONE_TRAINER, "cpu": 64})
    assert found.value.error == "too-big" and isinstance(found.value, ValueError)


def test_paddle_job_goes_to_the_configured_server(home, shared, package, tmp_path, monkeypatch):  # noqa: F811
    import paddle.job as job

    config = tmp_path / "config"
    config.write_text(f"cloud:\n  username: ada\n  password: {PASSWORD}\n  endpoint: {shared}\n")
    monkeypatch.setenv("PADDLE_CONFIG", str(config))
    folder = package("import os\nprint(os.environ['PADDLE_CLOUD_USERNAME'])")
    options = {"entry_point": "python3 train.py", "trainer_package_path": folder, "trainers": 1, "pservers": 0}
    far = job.PaddleJob(job_name="far", memory="128M", namespace="ada", **options)
    far.submit()
    assert [line for line in far.logs(follow=True) if line.stream == "output"] == ["ada"]
    assert far.wait() == "Succeeded"
    with pytest.raises(errors.NotPossibleHere, match="namespace `yanxu`: yours is `ada`"):
        job.PaddleJob(job_name="far-2", namespace="yanxu", **options).submit()
