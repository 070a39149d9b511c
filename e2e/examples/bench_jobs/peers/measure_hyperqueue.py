"""Measures HyperQueue through its Python package; prints one JSON object as the last line.

start         a worker in the same process: submit to the first line, then what idling costs
queue N       no worker, so that everything waits: N jobs of one task, from one client and from several
hello FOLDER  one job for the server of that folder; what `start` runs as a new client
"""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time

from hyperqueue import Job
from hyperqueue.client import Client
from hyperqueue.cluster import LocalCluster, WorkerConfig

RUNS = 11
IDLE_S = 20
PAUSE_S = 0.25
CLIENTS = 4
OUTPUT = os.path.abspath("output")


def start():
    folder = os.getcwd()
    cluster = LocalCluster(folder, WorkerConfig(cores=1))
    client = cluster.client()
    first_line = median_to_first_line(lambda: hello(client))
    from_new_client = median_to_first_line(lambda: subprocess.run([sys.executable, __file__, "hello", folder]))
    cpu = time.process_time()
    time.sleep(IDLE_S)
    return {
        "first_line_s": first_line,
        "from_new_client_s": from_new_client,
        "memory_kib": resident_kib(),
        "cpu_share": (time.process_time() - cpu) / IDLE_S,
    }


def hello(client):
    job = Job()
    job.program(["sh", "-c", "echo here I am"], stdout=OUTPUT)
    client.submit(job)


def median_to_first_line(submit):
    return statistics.median(to_first_line(submit) for _ in range(RUNS))


def to_first_line(submit):
    """Looks at the file that the task writes: the client's own waiting asks once a second."""
    if os.path.exists(OUTPUT):
        os.remove(OUTPUT)
    # Right after another job this one would wait for the next round of scheduling: a pause shows it at its best.
    time.sleep(PAUSE_S)
    begun = time.perf_counter()
    submit()
    while not (os.path.exists(OUTPUT) and os.path.getsize(OUTPUT)):
        time.sleep(0.0005)
    return time.perf_counter() - begun


def queue(jobs):
    rates = {clients: rate(jobs, clients) for clients in (1, CLIENTS)}
    best = max(rates, key=rates.get)
    return {"per_second": rates[best], "clients": best}


def rate(jobs, clients):
    """A fresh server each time, because a longer queue is slower."""
    folder = f"{os.getcwd()}/{clients}"
    os.mkdir(folder)
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Barrier(clients + 1)
    with LocalCluster(folder):
        share = jobs // clients
        others = [spawn.Process(target=submit, args=(folder, share, ready)) for _ in range(clients)]
        for other in others:
            other.start()
        ready.wait()
        begun = time.perf_counter()
        ready.wait()
        took = time.perf_counter() - begun
        for other in others:
            other.join()
    return share * clients / took


def submit(folder, jobs, ready):
    client = Client(folder)
    ready.wait()
    for _ in range(jobs):
        job = Job()
        job.program(["true"])
        client.submit(job)
    ready.wait()


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def main(what, *arguments):
    if what == "hello":
        return hello(Client(*arguments))
    result = start() if what == "start" else queue(int(*arguments))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
