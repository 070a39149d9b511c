"""Measures the parameter server beside its peers: two servers and two workers on loopback, a process each.

    cargo xtask bench pserver [--only dense sparse checkpoints memory connections ctr] [--rounds N] [--small]
    python3 crates/py/bench/bench_pserver.py --wheel FILE ...     # without cargo and without an index

Systems take turns, round by round, and the medians are printed. Throughput is what both workers move together; CPU is that of all
processes. "ours" uses TCP, "shared" is ours through shared memory. PyTorch's RPC (over TCP) and Ray take part where they are installed.
`ctr` trains the example through `paddlectl`.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Ray's processes accept only each other.
RAY = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}


# ---- processes -------------------------------------------------------------------------------------------------------------------


def cpu_seconds():
    """For every process: its parent, and the CPU time it has used."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            found[int(entry)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
    return found


def cpu_of(children):
    """The CPU time of these processes and of all below them."""
    used = cpu_seconds()
    below = {child.process.pid for child in children}
    while grown := {pid for pid, (parent, _) in used.items() if parent in below} - below:
        below |= grown
    return sum(used[pid][1] for pid in below if pid in used)


class Child:
    """A process in a role; it talks in lines of JSON."""

    def __init__(self, role, **settings):
        self.ends_itself = role.startswith("ray")  # it takes Ray's own processes with it
        command = [sys.executable, str(HERE / "pserver_roles.py"), role, json.dumps(settings)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **RAY}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def tell(self, what):
        print(json.dumps(what), file=self.process.stdin, flush=True)

    def hear(self):
        """The next line; anything else a library prints is skipped."""
        while line := self.process.stdout.readline():
            with contextlib.suppress(ValueError):
                return json.loads(line)
        raise SystemExit("error: a process of the benchmark ended early")

    def memory(self):
        """Resident bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def end(self):
        if self.ends_itself:
            self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        self.process.kill()
        self.process.wait()


# ---- the race --------------------------------------------------------------------------------------------------------------------


class Contender:
    """Two servers and two workers of one system, ready to run."""

    def __init__(self, system, settings):
        servers = trainers = 2
        where = {}
        if system == "torch":
            where = {"port": free_port(), "servers": servers}
            sizes = {"elements": settings["elements"], "rows": settings["rows"], "trainers": trainers}
            self.servers = [Child("torch_server", index=index, **where, **sizes) for index in range(servers)]
        elif system == "ray":
            self.servers = [Child("ray_server", servers=servers, trainers=trainers, elements=settings["elements"])]
            where = {"addresses": [self.servers[0].hear()], "servers": servers}
        elif system == "memcpy":
            self.servers, where = [], {"addresses": []}
        else:
            placed = [{"index": index, "servers": servers, "trainers": trainers} for index in range(servers)]
            self.servers = [Child(f"{system}_server", **each) for each in placed]
            where = {"addresses": [server.hear() for server in self.servers]}
        self.workers = [
            Child(f"{system}_worker", trainer=trainer, trainers=trainers, **where, **settings)
            for trainer in range(trainers)
        ]
        for worker in self.workers:
            worker.hear()

    def run(self, steps):
        """(seconds, CPU seconds of all processes) of `steps` steps of every worker."""
        everybody = self.servers + self.workers
        before, start = cpu_of(everybody), time.perf_counter()
        for worker in self.workers:
            worker.tell(steps)
        for worker in self.workers:
            assert worker.hear() == "done"
        seconds = time.perf_counter() - start
        cpu = cpu_of(everybody) - before
        for worker in self.workers:
            worker.hear()
        return seconds, cpu

    def end(self):
        for child in self.workers + self.servers:
            child.end()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def race(systems, settings, steps, rounds, show):
    contenders = {}
    found = {system: [] for system in systems}
    try:
        for system in systems:
            contenders[system] = Contender(system, settings)
        for _ in range(rounds):
            for system, contender in contenders.items():
                found[system].append(contender.run(steps))
    finally:
        for contender in contenders.values():
            contender.end()
    for system, runs in found.items():
        seconds, cpu = (statistics.median(column) for column in zip(*runs))
        show(system, seconds, cpu)


def peers(*wanted):
    """Those of the peers that are installed."""
    modules = {"torch": "torch.distributed.rpc", "ray": "ray"}
    found = []
    for system in wanted:
        try:
            is_there = importlib.util.find_spec(modules[system]) is not None
        except ImportError:
            is_there = False
        if is_there:
            found.append(system)
        else:
            print(f"  ({system} is not installed here and takes no part)", flush=True)
    return found


def dense(options):
    elements = 2_500_000 if options.small else 25_000_000
    steps = 10
    moved = 2 * 2 * 4 * elements * steps / 1e9
    print(f"\ndense, {elements * 4 / 1e6:.0f} MB push + pull\n  system      GB/s   CPU-s/GB", flush=True)

    def show(system, seconds, cpu):
        print(f"  {system:8} {moved / seconds:7.2f} {cpu / moved:10.3f}", flush=True)

    systems = ["ours", "shared", "bare", "memcpy", *peers("torch", "ray")]
    race(systems, {"work": "dense", "elements": elements, "rows": 2, "zipf": False}, steps, options.rounds, show)


def sparse(options):
    cases = [("100,000 rows, uniform", 100_000, False), ("10 million rows, Zipf", 10_000_000, True)]
    for title, rows, zipf in cases[:1] if options.small else cases:
        steps = 50
        asked = 2 * 10_000 * steps
        print(f"\nsparse, 64 floats, 10,000 ids a step, lookup + push; {title}\n  system    M rows/s   CPU-µs/row", flush=True)

        def show(system, seconds, cpu, asked=asked):
            print(f"  {system:8} {asked / seconds / 1e6:9.2f} {cpu / asked * 1e6:12.2f}", flush=True)

        settings = {"work": "sparse", "elements": 2, "rows": rows, "zipf": zipf}
        race(["ours", "shared", "bare", *peers("torch")], settings, steps, options.rounds, show)


# ---- checkpoints -----------------------------------------------------------------------------------------------------------------


def checkpoints(options):
    """How long the steps of a trainer take while its servers write checkpoints, beside those of one without."""
    rows, every, steps = (1_000_000 if options.small else 10_000_000), 200, 1_000
    print(
        f"\n{rows:,} rows of 16 with Adagrad, 10,000 ids a step, Zipf\n"
        f"  checkpoint every   median ms   p99 ms   longest ms   slower than 2 x the median",
        flush=True,
    )
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        for interval in (0, every):
            servers = [Child("ours_server", index=index, servers=2, trainers=1) for index in range(2)]
            addresses = [server.hear() for server in servers]
            run = {"rows": rows, "steps": steps, "folder": folder, "every": interval}
            trainer = Child("checkpointed_worker", addresses=addresses, **run)
            took = sorted(trainer.hear())
            for child in (trainer, *servers):
                child.end()
            median = statistics.median(took)
            slow = sum(each > 2 * median for each in took) / len(took)
            quantile = took[len(took) * 99 // 100]
            print(
                f"  {interval or 'none':>16} {median * 1e3:11.2f} {quantile * 1e3:8.2f} {took[-1] * 1e3:12.1f} {slow:10.2%}",
                flush=True,
            )


# ---- one server ------------------------------------------------------------------------------------------------------------------


def memory(options):
    import numpy as np
    from paddlecloud import ps
    from pserver_roles import session_of

    rows, elements = (500_000, 12_500_000) if options.small else (10_000_000, 250_000_000)
    print("\nmemory\n  what                                     MB   least   ratio   ratio while saving", flush=True)
    for what in ("rows", "dense"):
        server = Child("ours_server", index=0, servers=1, trainers=1)
        session = session_of([server.hear()], 0, 1, shares_memory=False)
        start = server.memory()
        if what == "rows":
            session.table("emb", 16, ps.Adagrad(0.1))
            for first in range(0, rows, 100_000):
                session.lookup("emb", np.arange(first, first + 100_000))
            least, title = rows * (8 + 64 + 64), f"{rows:,} rows of 16, Adagrad"
        else:
            session.create("w", np.zeros(elements, np.float32), ps.SGD(0.1))
            least, title = 4 * elements, f"{elements * 4 / 1e6:,.0f} MB dense, SGD"
        held = settled(server) - start
        highest = [held]
        ended = threading.Event()

        def watch(server=server, start=start, highest=highest, ended=ended):
            while not ended.wait(0.02):
                highest.append(server.memory() - start)

        watcher = threading.Thread(target=watch)
        watcher.start()
        with tempfile.TemporaryDirectory() as folder:
            session.save(f"{folder}/model")
        ended.set()
        watcher.join()
        server.end()
        print(f"  {title:36} {held / 1e6:6.0f} {least / 1e6:7.0f} {held / least:7.2f} {max(highest) / least:8.2f}", flush=True)


def settled(server):
    """The memory once it no longer falls: buffers of the last request are freed after its reply."""
    least = server.memory()
    while True:
        time.sleep(0.5)
        now = server.memory()
        if now >= least:
            return now
        least = now


class Crowd:
    """One server and many connections, all from this process; only the server's CPU time counts."""

    def __init__(self, system, count, elements):
        import numpy as np
        from paddlecloud import ps
        from pserver_roles import BareSession, session_of

        role = "bare_crowd_server" if system == "bare sockets" else "ours_server"
        self.server = Child(role, index=0, servers=1, trainers=count)
        address = self.server.hear()
        self.gradient = np.full(elements, 1e-3, np.float32)
        self.outs = [np.empty(elements, np.float32) for _ in range(count)]
        if system == "bare sockets":
            self.sessions = [BareSession(address, elements) for _ in range(count)]
        else:
            shares = system == "shared memory"
            self.sessions = [session_of([address], trainer, count, shares) for trainer in range(count)]
            for session in self.sessions:
                session.create("w", np.zeros(elements, np.float32), ps.SGD(0.1))
        self.run(2 * count)

    def run(self, total):
        """(seconds, server CPU seconds) of `total` pushes and pulls."""

        def work(session, out):
            for _ in range(total // len(self.sessions)):
                session.push({"w": self.gradient})
                session.pull("w", out=out)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(self.sessions, self.outs)]
        before, start = cpu_of([self.server]), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start, cpu_of([self.server]) - before


def connections(options):
    """Bare sockets show what more connections cost on this machine without a parameter server."""
    elements, total = 1_000_000, 64 if options.small else 256
    moved = 2 * 4 * elements * total / 1e9
    systems, counts = ("TCP", "shared memory", "bare sockets"), (1, 4, 16, 64)
    found = {(system, count): [] for system in systems for count in counts}
    crowds = {(system, count): Crowd(system, count, elements) for system, count in found}
    for _ in range(options.rounds):
        for each, crowd in crowds.items():
            found[each].append(crowd.run(total))
    for system in systems:
        print(f"\nconnections, 4 MB push + pull each, {system}\n  connections      GB/s   server CPU-s/GB", flush=True)
        for count in counts:
            seconds, cpu = (statistics.median(column) for column in zip(*found[system, count]))
            print(f"  {count:11} {moved / seconds:9.2f} {cpu / moved:17.3f}", flush=True)
            crowds[system, count].server.end()


# ---- the example -----------------------------------------------------------------------------------------------------------------


class Cloud:
    """`paddlectl` with a home of its own."""

    def __init__(self, home):
        self.environment = {**os.environ, "HOME": home, "USER": "bench"}
        self.jobs = 0

    def call(self, *args):
        command = ["paddlectl", *map(str, args)]
        ran = subprocess.run(command, env=self.environment, text=True, capture_output=True)
        if ran.returncode:
            raise SystemExit(f"error: `{' '.join(command)}` failed\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        return ran.stdout

    def run(self, entry, *flags):
        """Runs the example `ctr` and returns what its workers printed."""
        self.jobs += 1
        job = f"ctr-{self.jobs}"
        workers = ["-cpu", "1", "-memory", "1Gi", "-pscpu", "1", "-psmemory", "512Mi"]
        self.call("submit", "-f", "-jobname", job, *workers, *flags, "-entry", entry, ROOT / "examples/ctr")
        return self.call("logs", "--raw", job)


# One pass takes a second, and the trainers do not start at the same moment. With more passes the example overfits and fails its check.
PASSES = 4


def ctr(options):
    if shutil.which("paddlectl") is None:
        print("\nctr: there is no `paddlectl`; this wheel was built without it", flush=True)
        return
    # A trainer's rate is that from its first batch to its last one.
    print("\nctr through `paddlectl`, 2 parameter servers\n  trainers   samples/s", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        cloud = Cloud(home)
        data = json.loads(cloud.call("whoami", "-o", "json"))["home"] + "/clicks"
        try:
            cloud.run(f"python prepare.py {data}", "-pservers", 0)
            found = {1: [], 2: []}
            for _ in range(1 if options.small else options.rounds):
                for trainers, rates in found.items():
                    flags = ["-parallelism", trainers, "-pservers", 2, "-passes", 2 if options.small else PASSES]
                    log = cloud.run(f"python train.py {data}", *flags)
                    rates.append(sum(map(float, re.findall(r"(\d+) samples/s", log))))
        finally:
            cloud.call("server", "stop")
    rates = {trainers: statistics.median(rates) for trainers, rates in found.items()}
    for trainers, rate in rates.items():
        print(f"  {trainers:8} {rate:11,.0f}   {rate / rates[1]:.2f} x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {
        "dense": dense,
        "sparse": sparse,
        "checkpoints": checkpoints,
        "memory": memory,
        "connections": connections,
        "ctr": ctr,
    }
    parser.add_argument("--only", choices=parts, nargs="+", default=list(parts))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tenth of the data")
    parser.add_argument("--wheel", help="install this wheel in an environment of its own first")
    options = parser.parse_args()
    if options.wheel:
        from pserver_wheel import restart_with

        others = ["--only", *options.only, "--rounds", str(options.rounds), *["--small"][: options.small]]
        with tempfile.TemporaryDirectory() as folder:
            restart_with(options.wheel, folder, __file__, others)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, Python {sys.version.split()[0]}", flush=True)
    for name in options.only:
        parts[name](options)


if __name__ == "__main__":
    main()
