"""Measures the parameter server beside its peers: two servers and two workers on loopback, a process each.

    cargo xtask bench pserver [--only dense|sparse|memory|connections] [--rounds N] [--small]

Peers take turns, round by round, and the medians are printed. Throughput is what both workers move together; CPU is that of all processes.
"bare" moves the same bytes over plain sockets and computes nothing. PyTorch's RPC takes part where torch is installed.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

F = np.float32
SECRET = "bench"
WIDTH = 64
IDS = 10_000
TICKS = os.sysconf("SC_CLK_TCK")


# ---- processes -------------------------------------------------------------------------------------------------------------------


class Child:
    """A process of this program in a role; they talk in lines of JSON."""

    def __init__(self, role, **settings):
        command = [sys.executable, __file__, "--role", role, json.dumps(settings)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def tell(self, what):
        print(json.dumps(what), file=self.process.stdin, flush=True)

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("error: a process of the benchmark ended early")
        return json.loads(line)

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self):
        self.process.kill()
        self.process.wait()


def tell_parent(what):
    print(json.dumps(what), flush=True)


def hear_parent():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def park():
    """Waits until the parent ends."""
    while True:
        hear_parent()


def measured(worker_steps):
    """A worker: warms up, waits for the start, and works."""
    worker_steps(2)
    while True:
        tell_parent("ready")
        worker_steps(hear_parent())
        tell_parent("done")


# ---- ours ------------------------------------------------------------------------------------------------------------------------


def ours_server(index, servers, trainers):
    from paddlecloud import _native

    tell_parent(_native.ps_serve(trainers, SECRET, index, servers))
    park()


def session_of(addresses, trainer, trainers):
    from paddlecloud import _native
    from paddlecloud.ps.session import Session, _Job, _Watchdog

    job = _Job(addresses, trainer, trainers, 1, SECRET)
    watchdog = _Watchdog(0)
    native = _native.PsClient(addresses, trainer, trainers, 1, SECRET, "async", 0, False, "", 0, 60.0, watchdog.on_wait)
    return Session(native, job, "async", watchdog)


def ours_worker(addresses, trainer, trainers, work, elements, rows, zipf):
    from paddlecloud import ps

    session = session_of(addresses, trainer, trainers)
    if work == "dense":
        session.create("w", np.full(elements, 0.5, F), ps.SGD(0.1))
        gradient, out = np.full(elements, 1e-3, F), np.empty(elements, F)

        def steps(count):
            for _ in range(count):
                session.push({"w": gradient})
                session.pull("w", out=out)

        return measured(steps)
    session.table("emb", WIDTH, ps.SGD(0.1))
    draw, gradients, out = drawer(trainer, rows, zipf), np.full((IDS, WIDTH), 1e-3, F), np.empty((IDS, WIDTH), F)

    def steps(count):
        for _ in range(count):
            ids = draw()
            session.lookup("emb", ids, out=out)
            session.push_rows("emb", ids, gradients)

    measured(steps)


def drawer(trainer, rows, zipf):
    """Batches of ids, drawn beforehand."""
    source = np.random.default_rng(trainer)
    draw = (lambda: source.zipf(1.1, IDS) % rows) if zipf else (lambda: source.integers(0, rows, IDS))
    batches = [draw().astype(np.int64) for _ in range(16)]
    state = {"at": 0}

    def following():
        state["at"] += 1
        return batches[state["at"] % len(batches)]

    return following


# ---- bare sockets ----------------------------------------------------------------------------------------------------------------


def bare_server(index, servers, trainers):
    listener = socket.create_server(("127.0.0.1", 0))
    tell_parent(f"127.0.0.1:{listener.getsockname()[1]}")

    def serve(stream):
        size = int.from_bytes(stream.recv(8), "little")
        buffer = memoryview(bytearray(size))
        while receive(stream, buffer):
            stream.sendall(buffer)

    while True:
        stream, _ = listener.accept()
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(stream,), daemon=True).start()


def receive(stream, buffer):
    at = 0
    while at < len(buffer):
        count = stream.recv_into(buffer[at:])
        if not count:
            return False
        at += count
    return True


def bare_worker(addresses, trainer, trainers, work, elements, rows, zipf):
    """Sends what a gradient has and receives as much, half on each server."""
    share = (elements * 4 if work == "dense" else IDS * (WIDTH * 4 + 8)) // len(addresses)
    streams = []
    for address in addresses:
        host, port = address.split(":")
        stream = socket.create_connection((host, int(port)))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(share.to_bytes(8, "little"))
        streams.append((stream, memoryview(bytearray(share)), memoryview(bytearray(share))))

    def exchange(stream, out, back):
        stream.sendall(out)
        receive(stream, back)

    def steps(count):
        for _ in range(count):
            threads = [threading.Thread(target=exchange, args=each) for each in streams]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    measured(steps)


# ---- PyTorch's RPC ---------------------------------------------------------------------------------------------------------------

_torch_state = {}


def torch_push(gradient):
    _torch_state["w"].add_(gradient, alpha=-0.1)


def torch_pull():
    return _torch_state["w"]


def torch_lookup(ids):
    return _torch_state["table"][ids]


def torch_push_rows(ids, gradients):
    _torch_state["table"].index_add_(0, ids, gradients, alpha=-0.1)


def torch_rpc(name, rank, world, port):
    import torch.distributed.rpc as rpc

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"], num_worker_threads=4)
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)
    return rpc


def torch_server(index, servers, trainers, port, elements, rows):
    import torch

    torch.set_num_threads(1)
    _torch_state["w"] = torch.full((elements // servers,), 0.5)
    _torch_state["table"] = torch.zeros(rows // servers + 1, WIDTH)
    torch_rpc(f"server{index}", index, servers + trainers, port)
    park()


def torch_worker(port, trainer, trainers, servers, work, elements, rows, zipf):
    import torch

    torch.set_num_threads(1)
    rpc = torch_rpc(f"worker{trainer}", servers + trainer, servers + trainers, port)
    names = [f"server{index}" for index in range(servers)]

    def at_all(call, arguments):
        waiting = [rpc.rpc_async(name, call, given) for name, given in zip(names, arguments)]
        return [each.wait() for each in waiting]

    if work == "dense":
        halves = torch.full((elements,), 1e-3).chunk(servers)
        out = torch.empty(elements).chunk(servers)

        def steps(count):
            for _ in range(count):
                at_all(torch_push, [(half,) for half in halves])
                for into, found in zip(out, at_all(torch_pull, [()] * servers)):
                    into.copy_(found)

        return measured(steps)
    draw, gradients = drawer(trainer, rows, zipf), torch.full((IDS, WIDTH), 1e-3)
    out = torch.empty(IDS, WIDTH)

    def steps(count):
        for _ in range(count):
            ids = torch.from_numpy(draw())
            places = [(ids % servers == index).nonzero().squeeze(1) for index in range(servers)]
            local = [torch.div(ids[at], servers, rounding_mode="floor") for at in places]
            for at, found in zip(places, at_all(torch_lookup, [(each,) for each in local])):
                out[at] = found
            at_all(torch_push_rows, [(each, gradients[at]) for each, at in zip(local, places)])

    measured(steps)


# ---- the race --------------------------------------------------------------------------------------------------------------------


class Contender:
    """Two servers and two workers of one system, ready to run."""

    def __init__(self, system, settings):
        servers = trainers = 2
        if system == "torch":
            port = free_port()
            sizes = {"elements": settings["elements"], "rows": settings["rows"]}
            self.servers = [
                Child("torch_server", index=index, servers=servers, trainers=trainers, port=port, **sizes)
                for index in range(servers)
            ]
            where = {"port": port, "servers": servers}
        else:
            self.servers = [
                Child(f"{system}_server", index=index, servers=servers, trainers=trainers) for index in range(servers)
            ]
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
        before, start = [child.cpu() for child in everybody], time.perf_counter()
        for worker in self.workers:
            worker.tell(steps)
        for worker in self.workers:
            assert worker.hear() == "done"
        seconds = time.perf_counter() - start
        cpu = sum(child.cpu() - used for child, used in zip(everybody, before))
        for worker in self.workers:
            worker.hear()
        return seconds, cpu

    def end(self):
        for child in self.servers + self.workers:
            child.end()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def race(systems, settings, steps, rounds, show):
    contenders = {system: Contender(system, settings) for system in systems}
    found = {system: [] for system in systems}
    try:
        for _ in range(rounds):
            for system, contender in contenders.items():
                found[system].append(contender.run(steps))
    finally:
        for contender in contenders.values():
            contender.end()
    for system, runs in found.items():
        seconds, cpu = (statistics.median(column) for column in zip(*runs))
        show(system, seconds, cpu)


def systems():
    try:
        import torch.distributed.rpc as rpc
    except ImportError:
        print("PyTorch is not installed here and takes no part", file=sys.stderr)
        return ["ours", "bare"]
    return ["ours", "bare", "torch"] if rpc.is_available() else ["ours", "bare"]


def dense(options):
    elements = 2_500_000 if options.small else 25_000_000
    steps = 10
    moved = 2 * 2 * 4 * elements * steps / 1e9
    print(f"\ndense, {elements * 4 / 1e6:.0f} MB push + pull\n  system      GB/s   CPU-s/GB")

    def show(system, seconds, cpu):
        print(f"  {system:8} {moved / seconds:7.2f} {cpu / moved:10.3f}", flush=True)

    race(systems(), {"work": "dense", "elements": elements, "rows": 2, "zipf": False}, steps, options.rounds, show)


def sparse(options):
    cases = [("100,000 rows, uniform", 100_000, False), ("10 million rows, Zipf", 10_000_000, True)]
    for title, rows, zipf in cases[:1] if options.small else cases:
        steps = 50
        asked = 2 * IDS * steps
        print(f"\nsparse, {WIDTH} floats, {IDS:,} ids a step, lookup + push; {title}\n  system    M rows/s   CPU-µs/row")

        def show(system, seconds, cpu, asked=asked):
            print(f"  {system:8} {asked / seconds / 1e6:9.2f} {cpu / asked * 1e6:12.2f}", flush=True)

        taking_part = [system for system in systems() if not (zipf and system == "torch")]
        settings = {"work": "sparse", "elements": 2, "rows": rows, "zipf": zipf}
        race(taking_part, settings, steps, options.rounds, show)


def memory(options):
    from paddlecloud import ps

    rows, elements = (500_000, 12_500_000) if options.small else (10_000_000, 250_000_000)
    print("\nmemory\n  what                                     MB   least   ratio   ratio while saving")
    for what in ("rows", "dense"):
        server = Child("ours_server", index=0, servers=1, trainers=1)
        session = session_of([server.hear()], 0, 1)
        start = server.memory()
        if what == "rows":
            session.table("emb", 16, ps.Adagrad(0.1))
            for first in range(0, rows, 100_000):
                session.lookup("emb", np.arange(first, first + 100_000))
            least, title = rows * (8 + 64 + 64), f"{rows:,} rows of 16, Adagrad"
        else:
            session.create("w", np.zeros(elements, F), ps.SGD(0.1))
            least, title = 4 * elements, f"{elements * 4 / 1e6:,.0f} MB dense, SGD"
        held = settled(server) - start
        highest = [held]
        ended = threading.Event()

        def watch(server=server, start=start, highest=highest, ended=ended):
            while not ended.wait(0.02):
                highest.append(server.memory() - start)

        watcher = threading.Thread(target=watch)
        watcher.start()
        folder = f"/tmp/bench-pserver-{os.getpid()}"
        session.save(folder)
        ended.set()
        watcher.join()
        subprocess.run(["rm", "-rf", folder], check=True)
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


def connections(options):
    from paddlecloud import ps

    print("\nconnections, 4 MB push + pull each\n  connections      GB/s   server CPU-s/GB")
    elements, total = 1_000_000, 64 if options.small else 256
    for count in (1, 4, 16, 64):
        server = Child("ours_server", index=0, servers=1, trainers=count)
        address = [server.hear()]
        sessions = [session_of(address, trainer, count) for trainer in range(count)]
        gradient = np.full(elements, 1e-3, F)
        for session in sessions:
            session.create("w", np.zeros(elements, F), ps.SGD(0.1))

        def work(session, times):
            out = np.empty(elements, F)
            for _ in range(times):
                session.push({"w": gradient})
                session.pull("w", out=out)

        work(sessions[0], 2)
        threads = [threading.Thread(target=work, args=(session, total // count)) for session in sessions]
        before, start = server.cpu(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, cpu = time.perf_counter() - start, server.cpu() - before
        moved = 2 * 4 * elements * total / 1e9
        print(f"  {count:11} {moved / seconds:9.2f} {cpu / moved:17.3f}", flush=True)
        server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    parts = {"dense": dense, "sparse": sparse, "memory": memory, "connections": connections}
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tenth of the data")
    options = parser.parse_args()
    if options.role:
        role, settings = options.role
        return globals()[role](**json.loads(settings))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, part in parts.items():
        if options.only in (None, name):
            part(options)


if __name__ == "__main__":
    main()
