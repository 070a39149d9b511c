"""The clients cover the REST interface: every route of openapi.json is asked for by a method of both."""

import asyncio
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from embedded import LIMIT_SECONDS, ONE_TRAINER, home, package  # noqa: F401
from relay import Relay
from test_client_shared import PASSWORD, shared  # noqa: F401

import paddlecloud
from paddlecloud import aio, client, errors, files

ROOT = Path(__file__).resolve().parents[3]
SPEC = json.loads((ROOT / "crates" / "api" / "openapi.json").read_text())

# Steps of a transfer that depend on what the other side has already: no caller takes them one by one.
STEPS = {
    "upload_show": "an upload that resumes after a lost connection",
    "upload_range": "a new version of a file, of which only what differs is sent",
    "upload_reuse": "the same",
    "file_signature": "the same as upload_range",
    "pack_send": "a download of many small files",
    "package_announce": "a package whose list is too long for the request that submits it",
}
# Accounts and credentials are managed with `paddlectl`; a program that must do it uses `Client.request`.
MANAGED_BY_COMMANDS = {
    *("user_list", "user_add", "user_show", "user_set", "user_delete", "group_list", "group_set", "group_delete"),
    *("certificate_list", "certificate_issue", "certificate_revoke"),
    *("audit_list", "audit_verify", "usage_list", "secrets_rotate"),
    *("token_list", "token_issue", "token_renew", "token_revoke", "token_logout", "password_change"),
    *("device_login", "device_login_poll"),
    *("secret_list", "secret_set", "secret_delete", "registry_create"),
}
# The same thing under another path.
OTHER_SPELLINGS = {"job_kill_named": "job_kill"}
EXCEPTIONS = {*STEPS, *MANAGED_BY_COMMANDS, *OTHER_SPELLINGS}


def operations():
    """Every route: the name of its operation, its method, and a pattern for its path."""
    for path, methods in SPEC["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
        for method, operation in methods.items():
            yield operation["operationId"], method.upper(), re.compile(pattern + "/?$")


@pytest.fixture
def relay(shared):  # noqa: F811
    host, port = shared.split(":")
    relay = Relay(host, int(port))
    yield relay
    relay.close()


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def use_everything(way, folder, tmp_path):
    """Calls every method that there is; `way` waits for a reply, however the client does."""
    call, logs = way.call, way.logs
    server = way.client
    call(server.login())
    submitted = call(server.job_submit(folder, name=f"all-{way.name}", **ONE_TRAINER))
    call(server.job_wait(submitted.id, timeout=LIMIT_SECONDS))
    assert "done" in logs(server.job_logs(submitted.id, follow=True))
    assert "done" in call(server.job_log_text(submitted.id))
    assert call(server.job_get(submitted.id)).job.status == "Succeeded"
    assert call(server.job_why(submitted.id)).reason
    assert submitted.id in {job.id for job in call(server.jobs_list(all=True)).jobs}
    again = call(server.job_rerun(submitted.id))
    call(server.job_wait(again.id, timeout=LIMIT_SECONDS))
    assert call(server.workers_list(again.id))
    call(server.job_kill(again.id, remove=True))
    call(server.jobs_prune(dry_run=True))
    assert call(server.quota_get()) and call(server.server_get()).datacenter == "cloud"
    assert call(server.whoami_get()).user == "ada"
    call(server.ping())
    call(server.ready_get())
    assert "paddlecloud" in call(server.metrics_get())
    assert call(server.openapi_get())["paths"]
    assert json.loads(call(server.request("get", "/api/v1/jobs", query={"all": True, "limit": 1})))["code"] == 200
    assert call(server.registry_list()) == []
    for refused, kind in [
        (lambda: server.registry_delete("r"), errors.NotFoundError),
        (lambda: server.files.fsck(), errors.ForbiddenError),
        (lambda: server.server_stop(), errors.ForbiddenError),
    ]:
        with pytest.raises(kind):
            call(refused())
    use_files(way, tmp_path)


def use_files(way, tmp_path):
    call, service = way.call, way.client.files
    top = call(way.client.whoami_get()).home + f"/all-{way.name}"
    here = tmp_path / "here"
    here.mkdir()
    (here / "small").write_bytes(b"small")
    (here / "big").write_bytes(bytes(range(256)) * 40_000)
    call(service.mkdir(top))
    assert call(service.upload(here, f"{top}/tree")).transferred == 2
    assert call(service.exists(f"{top}/tree/big"))
    assert call(service.stat(f"{top}/tree/small", digest=True)).digest
    assert [found and found.size for found in call(service.stats(f"{top}/tree", ["small", "none"]))] == [5, None]
    assert len(call(service.listdir(top, recursive=True))) == 3
    assert len(call(service.glob(f"{top}/tree/*"))) == 2
    assert call(service.read(f"{top}/tree/small", 1, 3)) == b"ma"
    call(service.download(f"{top}/tree", tmp_path / "back"))
    call(service.rename(f"{top}/tree", f"{top}/moved"))
    call(service.copy(f"{top}/moved", f"{top}/copy"))
    assert call(service.usage(top)).files == 4 and call(service.quota()).files_used >= 4
    announced = {"path": f"{top}/begun", "size": 5_000_000, "key": way.name}
    call(way.client.request("POST", "/api/v1/pfs/uploads", json=announced))
    [upload] = call(service.uploads())
    assert (upload.path, upload.size, upload.arrived) == (f"{top}/begun", 5_000_000, 0)
    assert call(service.quota()).unfinished_bytes == 5_000_000
    call(service.drop_upload(upload.id))
    assert call(service.uploads()) == []
    share = call(service.publish(f"{top}/copy/small", lifetime=60))
    assert call(service.read_published(share.link)) == b"small"
    assert share.id in {known.id for known in call(service.published())}
    call(service.unpublish(share.id))
    call(service.mkdir(f"{top}/empty"))
    call(service.rmdir(f"{top}/empty"))
    with pytest.raises(errors.ConflictError):
        call(service.rmdir(top))
    call(service.remove(top, recursive=True))


class Waiting:
    name = "waiting"

    def __init__(self, address):
        self.client = paddlecloud.Client(address, username="ada", password=PASSWORD)

    def call(self, value):
        return value

    def logs(self, lines):
        return list(lines)


class Asynchronous:
    name = "asyncio"

    def __init__(self, address):
        self.client = paddlecloud.AsyncClient(address, username="ada", password=PASSWORD)

    def call(self, coroutine):
        async def limited():
            return await asyncio.wait_for(coroutine, LIMIT_SECONDS)

        return asyncio.run(limited())

    def logs(self, lines):
        async def read():
            return [line async for line in lines]

        return self.call(read())


@pytest.mark.parametrize("kind", [Waiting, Asynchronous])
def test_every_route_is_covered_by_a_method(kind, relay, package, tmp_path):  # noqa: F811
    program = f"print('done')  # {kind.name}: a package that the server has not seen yet"
    use_everything(kind(relay.address), package(program), tmp_path)
    missing = []
    for name, method, pattern in operations():
        asked = any(verb == method and pattern.match(path) for verb, path in relay.seen)
        if not asked and name not in EXCEPTIONS:
            missing.append(f"{method} {pattern.pattern} ({name})")
    assert not missing, f"no method of the client asks for {missing}"


def test_the_lists_of_exceptions_name_only_what_exists():
    names = {name for name, _, _ in operations()}
    assert EXCEPTIONS | set(OTHER_SPELLINGS.values()) <= names


def test_both_clients_have_the_same_methods_and_words():
    only_waiting = {"datacenter", "endpoint", "is_embedded"}
    assert public(client.Client) - public(aio.AsyncClient) == only_waiting
    assert public(files.Files) == public(files.AsyncFiles)
    for one, other in [(client.Client, aio.AsyncClient), (files.Files, files.AsyncFiles)]:
        for name in public(one) & public(other) - {"files", "job_logs"}:
            mine, theirs = getattr(one, name), getattr(other, name)
            assert inspect.signature(mine) == inspect.signature(theirs), name
            assert mine.__doc__ == theirs.__doc__ and mine.__doc__, name
            assert inspect.iscoroutinefunction(theirs) and not inspect.iscoroutinefunction(mine), name


def test_the_stubs_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "crates" / "py" / "stubs.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
