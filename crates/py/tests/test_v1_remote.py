"""A v1 configuration in a job: two trainers started by `python trainer_config.py`, and a real parameter server."""

import os
import re
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("paddle.nn")

from paddlecloud import _native

LIMIT_SECONDS = 300
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "examples", "v1", "ctr")


def test_the_documents_v1_job_trains_and_logs_its_servers(tmp_path):
    package = shutil.copytree(EXAMPLE, tmp_path / "ctr")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PADDLE", "TRAINING", "TRAINER"))}
    subprocess.run([sys.executable, "prepare.py"], cwd=package, env=clean, check=True, capture_output=True)
    address = _native.ps_serve(2, "hush")
    host, port = address.rsplit(":", 1)
    job = {
        "PADDLE_PSERVERS_IP_PORT_LIST": address,
        "PADDLE_INIT_PSERVERS": host,
        "PADDLE_INIT_PORT": port,
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
        "PADDLE_INIT_NUM_PASSES": "8",
        "PADDLE_INIT_USE_GPU": "0",
        "PADDLE_PS_SECRET": "hush",
    }
    running = [
        subprocess.Popen(
            [sys.executable, "trainer_config.py"],
            cwd=package,
            env={**clean, **job, "PADDLE_INIT_TRAINER_ID": str(number)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        said = [process.communicate(timeout=LIMIT_SECONDS)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], "\n".join(said)
    for number, text in enumerate(said):
        assert re.search(rf"commandline: /\S* --config=\S+ --port={port} .*--local=0 .*--trainer_id={number} .*--pservers={host} ", text)
        lines = re.findall(r"\] (pserver \d .*)$", text, re.M)
        assert lines == [f"pserver 0 {host}:{port}", f"pserver 0 {host}:{int(port) + 1}"], "the table is updated sparsely"
        assert re.search(r"\]  Batch=20 samples=1000 AvgCost=", text), "a job logs every 20 batches"
    costs = [re.findall(r"Test samples=1500 cost=([\d.]+)", text) for text in said]
    assert costs[0] == costs[1], "both have the servers' values"
    assert float(costs[0][-1]) < float(costs[0][0]) < 0.75
