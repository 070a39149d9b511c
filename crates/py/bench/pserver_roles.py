"""What the processes of `bench_pserver.py` do: servers and workers of each system, one process each.

    python pserver_roles.py ROLE SETTINGS

They talk with the benchmark in lines of JSON. "bare" moves the bytes of a gradient over plain sockets and computes nothing; "memcpy" copies
them within a process, once for a push and once for a pull.
"""

import json
import os
import socket
import sys
import threading
import time

import numpy as np

F = np.float32
SECRET = "bench"
WIDTH = 64
IDS = 10_000


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


def session_of(addresses, trainer, trainers, shares_memory, mode="async", folder="", every=0):
    from paddlecloud import _native
    from paddlecloud.ps.job import Job, Watchdog
    from paddlecloud.ps.session import Session

    job = Job(addresses, trainer, trainers, 1, SECRET)
    watchdog = Watchdog(0)
    native = _native.PsClient(
        addresses, trainer, trainers, 1, SECRET, mode, 0, False, folder, every, 60.0, watchdog.on_wait,
        shares_memory=shares_memory,
    )
    return Session(native, job, mode, watchdog)


shared_server = ours_server


def shared_worker(**settings):
    ours_worker(**settings, shares_memory=True)


def ours_worker(addresses, trainer, trainers, work, elements, rows, zipf, shares_memory=False):
    from paddlecloud import ps

    session = session_of(addresses, trainer, trainers, shares_memory)
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


def checkpointed_worker(addresses, rows, steps, folder, every):
    """Creates all rows, then trains; tells the seconds of each step."""
    from paddlecloud import ps

    session = session_of(addresses, 0, 1, shares_memory=False, mode="sync", folder=folder if every else "", every=every)
    session.table("emb", 16, ps.Adagrad(0.1))
    for first in range(0, rows, 500_000):
        session.lookup("emb", np.arange(first, min(rows, first + 500_000)))
    draw, gradients, out = drawer(0, rows, zipf=True), np.full((IDS, 16), 1e-3, F), np.empty((IDS, 16), F)
    took = []
    for _ in range(steps):
        start = time.perf_counter()
        ids = draw()
        session.lookup("emb", ids, out=out)
        session.push_rows("emb", ids, gradients)
        session.end_step()
        took.append(time.perf_counter() - start)
    tell_parent(took)
    park()


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

    while True:
        stream, _ = listener.accept()
        threading.Thread(target=echo, args=(stream,), daemon=True).start()


def bare_crowd_server(index, servers, trainers):
    """A process per connection: Python's threads would wait for each other."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=trainers)
    tell_parent(f"127.0.0.1:{listener.getsockname()[1]}")
    for _ in range(trainers):
        stream, _ = listener.accept()
        if os.fork() == 0:
            echo(stream)
            os._exit(0)
        stream.close()
    park()


def echo(stream):
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    size = int.from_bytes(stream.recv(8), "little")
    buffer = memoryview(bytearray(size))
    while receive(stream, buffer):
        stream.sendall(buffer)


class BareSession:
    """Sends and receives as many bytes as a session of the parameter server."""

    def __init__(self, address, elements):
        host, port = address.split(":")
        self.stream = socket.create_connection((host, int(port)))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream.sendall((4 * elements).to_bytes(8, "little"))

    def push(self, gradients):
        self.stream.sendall(gradients["w"])

    def pull(self, name, out):
        receive(self.stream, memoryview(out).cast("B"))


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


# ---- Ray ---------------------------------------------------------------------------------------------------------------------------


class RayServer:
    """An actor with half of the parameters. Arrays travel through Ray's shared object store."""

    def __init__(self, elements):
        self.w, self.change = np.full(elements, 0.5, F), np.empty(elements, F)

    def push(self, gradient):
        np.multiply(gradient, F(0.1), out=self.change)
        self.w -= self.change

    def pull(self):
        return self.w


def ray_quietly():
    import logging

    import ray

    return ray, {"namespace": "bench", "logging_level": logging.ERROR, "log_to_driver": False}


def ray_server(servers, trainers, elements):
    """Ray itself and both actors: its processes are children of this one."""
    ray, options = ray_quietly()
    store = 8 * 4 * elements + (200 << 20)
    ray.init(
        num_cpus=2 * servers,
        include_dashboard=False,
        object_store_memory=store,
        _node_ip_address="127.0.0.1",
        **options,
    )
    actor = ray.remote(RayServer)
    actors = [actor.options(name=f"server{index}").remote(elements // servers) for index in range(servers)]
    ray.get([each.pull.remote() for each in actors])
    tell_parent(ray.get_runtime_context().gcs_address)
    park()


def ray_worker(addresses, servers, trainer, trainers, work, elements, rows, zipf):
    ray, options = ray_quietly()
    ray.init(address=addresses[0], **options)
    actors = [ray.get_actor(f"server{index}") for index in range(servers)]
    halves = np.split(np.full(elements, 1e-3, F), servers)
    out = np.split(np.empty(elements, F), servers)

    def steps(count):
        for _ in range(count):
            ray.get([actor.push.remote(half) for actor, half in zip(actors, halves)])
            for into, actor in zip(out, [actor.pull.remote() for actor in actors]):
                np.copyto(into, ray.get(actor))

    measured(steps)


# ---- memcpy ------------------------------------------------------------------------------------------------------------------------


def memcpy_worker(addresses, trainer, trainers, work, elements, rows, zipf):
    gradient, held, out = np.full(elements, 1e-3, F), np.zeros(elements, F), np.zeros(elements, F)

    def steps(count):
        for _ in range(count):
            np.copyto(held, gradient)
            np.copyto(out, held)

    measured(steps)


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
