"""Measures HyperQueue through its Python package; prints one line of JSON.

start         a worker in the same process: submit to the first line; idles then until its input ends
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
CLIENTS = 4
OUTPUT = os.path.abspath("output")


def start():
    folder = os.getcwd()
    os.mkfifo(OUTPUT)
    cluster = LocalCluster(folder, WorkerConfig(cores=1))
    connected = cluster.client()
    times = {
        "first_line_s": statistics.median(from_connected(connected) for _ in range(RUNS)),
        "from_new_client_s": statistics.median(from_new(folder) for _ in range(RUNS)),
    }
    print(json.dumps(times), flush=True)
    sys.stdin.read()
    cluster.stop()


def from_connected(client):
    started = time.perf_counter()
    submitted = submit_hello(client)
    took = first_line() - started
    client.wait_for_jobs([submitted])
    return took


def from_new(folder):
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, __file__, "hello", folder]):
        return first_line() - started


def hello(folder):
    client = Client(folder)
    client.wait_for_jobs([submit_hello(client)])


def submit_hello(client):
    job = Job()
    job.program(["sh", "-c", "echo here I am"], stdout=OUTPUT)
    return client.submit(job)


def first_line():
    """When it came, straight from the task: the client's own waiting asks once a second."""
    with open(OUTPUT) as output:
        output.readline()
        return time.perf_counter()


def queue(jobs):
    rates = {clients: rate(jobs, clients) for clients in (1, CLIENTS)}
    best = max(rates, key=rates.get)
    print(json.dumps({"per_second": rates[best], "clients": best}), flush=True)


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
        started = time.perf_counter()
        ready.wait()
        took = time.perf_counter() - started
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


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["start"]:
            start()
        case ["queue", jobs]:
            queue(int(jobs))
        case ["hello", folder]:
            hello(folder)
