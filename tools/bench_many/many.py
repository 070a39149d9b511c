"""`cargo xtask bench many`: many users at once, without faults and then with the server killed again and again.

Every user submits jobs, reads lists, follows logs and uploads files with the real programs. Each acknowledged request is
looked up afterwards: the job exists under its id and name, the file has its bytes, the killed job is not running. Exits
with 1 if one of them is missing. Needs root: the users' workers run as system users of their own.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

PATIENCE = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """The server, which can be killed and started again."""

    def __init__(self, folder, program):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for name in ("paddlectl", "paddlecloud-server", "paddle"):
            (self.bin / name).symlink_to(program)
        self.port = free_port()
        self.config = folder / "server.yaml"
        self.config.write_text(
            f"listen: 127.0.0.1:{self.port}\ndata: data\ndatacenter: dc1\nsystem_uids: 30000-39999\n"
            "inventory: {cpu: 64, memory: 64Gi}\n"
        )
        self.log = open(folder / "server.log", "ab")
        self.process = None

    def run(self, *words, **options):
        return subprocess.run([self.bin / "paddlecloud-server", *words], check=True, capture_output=True, **options)

    def start(self):
        self.process = subprocess.Popen(
            [self.bin / "paddlecloud-server", "--config", self.config], stdout=self.log, stderr=self.log
        )
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if self.call("GET", "/healthz", None, None)[0] == 200:
                    return
            except OSError:
                time.sleep(0.02)
        sys.exit(f"the server does not start, see {self.folder}/server.log")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def call(self, method, path, token, body, headers=None, limit=PATIENCE):
        """One request; the status and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit)
        try:
            sent = {"authorization": f"Token {token}"} if token else {}
            sent.update(headers or {})
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()


class Phase:
    """One stretch of load: what was acknowledged, and how long each kind of request took."""

    def __init__(self, name):
        self.name = name
        self.lock = threading.Lock()
        self.times = collections.defaultdict(list)
        self.failed = collections.Counter()
        self.jobs, self.files, self.killed = {}, {}, set()

    def timed(self, kind, work):
        began = time.monotonic()
        try:
            done = work()
        except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
            done = None
        with self.lock:
            if done is None:
                self.failed[kind] += 1
            else:
                self.times[kind].append(time.monotonic() - began)
        return done


class User(threading.Thread):
    """One user at work until the time is over or all jobs are submitted."""

    def __init__(self, server, phase, name, token, jobs, until, seed):
        super().__init__(daemon=True)
        self.server, self.phase, self.user, self.token = server, phase, name, token
        self.left, self.until, self.rng = jobs, until, random.Random(seed)
        self.own = []

    def run(self):
        while time.monotonic() < self.until:
            dice = self.rng.random()
            if self.left > 0 and dice < 0.45:
                self.submit()
            elif dice < 0.75:
                self.phase.timed("read", lambda: self.get("/api/v1/jobs"))
            elif dice < 0.9 and self.own:
                self.follow(self.rng.choice(self.own))
            elif dice < 0.93 and self.own:
                self.kill(self.rng.choice(self.own))
            elif dice < 0.95:
                self.upload()
            time.sleep(self.rng.random() * 0.5)

    def get(self, path):
        status, body = self.server.call("GET", path, self.token, None)
        return body if status == 200 else None

    def submit(self):
        """The same key until there is an answer, as the client does it."""
        key, name = uuid.uuid4().hex, f"job-{uuid.uuid4().hex[:12]}"
        body = {
            "name": name, "job_package": f"/pfs/dc1/home/{self.user}/pkg", "entry": "echo done", "pservers": 0,
            "cpu": "100m", "memory": "16Mi",
        }

        def once():
            status, reply = self.server.call("POST", "/api/v1/jobs", self.token, body, {"idempotency-key": key})
            return json.loads(reply)["id"] if status == 200 else None

        def until_acknowledged():
            for _ in range(300):
                try:
                    if job := once():
                        return job
                except OSError:
                    pass
                with self.phase.lock:
                    self.phase.failed["submit"] += 1
                time.sleep(0.1)
            return None

        self.left -= 1
        if job := self.phase.timed("submit", until_acknowledged):
            with self.phase.lock:
                self.phase.jobs[job] = (self.user, self.token, name)
            self.own.append(job)

    def follow(self, job):
        self.phase.timed("logs", lambda: self.get(f"/api/v1/jobs/{job}/logs?follow=true"))

    def kill(self, job):
        def once():
            status, _ = self.server.call("DELETE", f"/api/v1/jobs/{job}", self.token, None)
            return job if status in (200, 404, 409) else None

        if self.phase.timed("kill", once):
            with self.phase.lock:
                self.phase.killed.add(job)

    def upload(self):
        data = os.urandom(self.rng.randrange(1, 64 << 10))
        with tempfile.NamedTemporaryFile(dir=self.server.folder) as local:
            local.write(data)
            local.flush()
            remote = f"/pfs/dc1/home/{self.user}/{uuid.uuid4().hex}"
            if self.phase.timed("upload", lambda: paddlectl(self.server, self.user, self.token, "cp", local.name, remote)):
                with self.phase.lock:
                    self.phase.files[remote] = (self.user, self.token, hashlib.sha256(data).hexdigest())


def paddlectl(server, user, token, *words):
    """Runs the client with a home of the user's own."""
    home = server.folder / "homes" / user
    config = home / ".paddle" / "config"
    if not config.exists():
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"dc1:\n  username: {user}\n  token: {token}\n  endpoint: http://127.0.0.1:{server.port}\n")
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [server.bin / "paddlectl", *words], env=environment, check=True, capture_output=True, timeout=2 * PATIENCE
    )


def accounts(server, count):
    """Adds users; returns their names and tokens."""
    environment = {**os.environ, "PADDLECLOUD_ADMIN_PASSWORD": "a long secret"}
    server.run("init", "--config", server.config, "--admin", "root", env=environment)
    server.start()
    login = {"username": "root", "password": "a long secret"}
    admin = json.loads(server.call("POST", "/api-token-auth", None, login)[1])["token"]
    users = []
    for number in range(count):
        name = f"user{number}"
        status, reply = server.call("POST", "/api/v1/admin/users", admin, {"name": name, "service": True})
        assert status == 200, reply
        status, reply = server.call("POST", "/api/v1/tokens", admin, {"name": "bench", "user": name})
        assert status == 200, reply
        token = json.loads(reply)["msg"]["token"]
        (server.folder / "empty").mkdir(exist_ok=True)
        paddlectl(server, name, token, "cp", "-r", server.folder / "empty", f"/pfs/dc1/home/{name}/pkg")
        users.append((name, token))
    return users


def load(server, users, phase, jobs, seconds, faults):
    until = time.monotonic() + seconds
    share = -(-jobs // len(users))
    threads = [User(server, phase, name, token, share, until, name + phase.name) for name, token in users]
    for thread in threads:
        thread.start()
    kills = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(3)
        if faults and time.monotonic() < until:
            server.kill()
            time.sleep(0.5)
            server.start()
            kills += 1
    return kills


def lost(server, phase):
    """The acknowledged requests of which there is no trace."""

    def job(entry):
        job, (user, token, name) = entry
        status, reply = server.call("GET", f"/api/v1/jobs/{job}", token, None)
        if status != 200 or json.loads(reply)["msg"]["job"]["name"] != name:
            return f"job {job} of {user}"
        if job in phase.killed and json.loads(reply)["msg"]["job"]["status"] in ("Pending", "Running"):
            return f"the kill of {job}"
        return None

    def file(entry):
        remote, (user, token, digest) = entry
        content = paddlectl(server, user, token, "cat", remote).stdout
        return None if hashlib.sha256(content).hexdigest() == digest else f"{remote} of {user}"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [*pool.map(job, phase.jobs.items()), *pool.map(file, phase.files.items())]
    return [line for line in found if line]


def percentile(times, part):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * part))]


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask bench many", description=__doc__)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=600, help="how long each of the two loads lasts")
    parser.add_argument("--calm-seconds", type=int, help="how long the one without faults lasts, if not as long")
    parser.add_argument("--short", action="store_true", help="20 users, 200 jobs, 20 seconds")
    parser.add_argument("--program", type=pathlib.Path, required=True)
    args = parser.parse_args()
    if args.short:
        args.users, args.jobs, args.seconds = 20, 200, 20
    if os.geteuid() != 0:
        sys.exit("this benchmark needs root: workers run as system users of their own")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(pathlib.Path(folder), args.program.resolve())
        os.chmod(folder, 0o711)
        try:
            users = accounts(server, args.users)
            missing = []
            for name, faults in (("without faults", False), ("with faults", True)):
                phase = Phase(name)
                seconds = args.seconds if faults else args.calm_seconds or args.seconds
                kills = load(server, users, phase, args.jobs // 2, seconds, faults)
                print(f"{name}: {len(phase.jobs)} jobs, {len(phase.files)} files, {len(phase.killed)} kills of jobs, "
                      f"{kills} kills of the server")
                for kind, times in sorted(phase.times.items()):
                    print(f"  {kind:8} {len(times):6} done {phase.failed[kind]:5} failed   "
                          f"p50 {1000 * percentile(times, 0.5):7.0f} ms   p99 {1000 * percentile(times, 0.99):7.0f} ms")
                gone = lost(server, phase)
                print(f"  acknowledged and not found afterwards: {len(gone)}")
                missing += gone
            for line in missing[:20]:
                print(f"missing: {line}")
            sys.exit(bool(missing))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
