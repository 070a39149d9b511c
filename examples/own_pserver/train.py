"""A trainer: fits a line together with the other trainers, through the parameter servers.

Each round it pulls the parameters, computes the gradient on its own share of the data and pushes it.
Trainer 0 writes what was learned to output/pass-NNNNN/ and checks it against the truth.

    paddlectl submit -f -parallelism 2 -pservers 2 -entry "python train.py" -psentry "python pserver.py" examples/own_pserver
"""

import json
import os
import signal
import sys

from model import BATCH, TRUE, farthest_from_truth, loss_and_gradient, samples
from wire import Connection, parse_address, shard

ROUNDS_PER_PASS = 150
REPORT_EVERY = 25
CLOSE_ENOUGH = 0.05


class Servers:
    """All parameter servers as one: pull gives the whole model, push takes a whole gradient."""

    def __init__(self, addresses):
        self._connections = [Connection(address) for address in addresses]

    def current_round(self):
        """Where training stands; not 0 for a trainer that was started again."""
        return min(self._ask_all("pull", round=0, key="round"))

    def pull(self, round_number):
        shards = self._ask_all("pull", round=round_number, key="values")
        return [value for values in shards for value in values]

    def push(self, round_number, trainer, gradient):
        for index, connection in enumerate(self._connections):
            part = shard(gradient, index, len(self._connections))
            connection.ask(op="push", round=round_number, trainer=trainer, gradient=part)

    def close(self):
        for connection in self._connections:
            connection.close()

    def _ask_all(self, op, key, **request):
        return [connection.ask(op=op, **request)[key] for connection in self._connections]


def train(servers, trainer, passes, output):
    """Runs all passes and returns the parameters of the last one."""
    share = samples(trainer)
    round_number = servers.current_round()
    while round_number < passes * ROUNDS_PER_PASS:
        pass_number, batch_number = divmod(round_number, ROUNDS_PER_PASS)
        start = round_number * BATCH % len(share)
        loss, gradient = loss_and_gradient(servers.pull(round_number), share[start:start + BATCH])
        servers.push(round_number, trainer, gradient)
        if batch_number % REPORT_EVERY == 0:
            print("pass %d batch %3d loss %.6f" % (pass_number, batch_number, loss), flush=True)
        round_number += 1
        if round_number % ROUNDS_PER_PASS == 0 and trainer == 0:
            save(output, pass_number, servers.pull(round_number))
    return servers.pull(round_number)


def save(output, pass_number, parameters):
    """Writes one pass; the mark `done` comes last, so a reader that sees it finds everything."""
    folder = os.path.join(output, "pass-%05d" % pass_number)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "parameters.json"), "w") as file:
        json.dump({"weights": parameters[:-1], "bias": parameters[-1]}, file, indent=2)
        file.write("\n")
    with open(os.path.join(folder, "done"), "w"):
        pass
    print("saved %s" % folder, flush=True)


def main():
    # Told to stop: leave at once and say so by the exit code, as a program without a handler would.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    trainer = int(os.environ["PADDLE_INIT_TRAINER_ID"])
    trainers = int(os.environ["PADDLE_INIT_NUM_GRADIENT_SERVERS"])
    passes = int(os.environ.get("PADDLE_INIT_NUM_PASSES", "1"))
    addresses = [parse_address(text) for text in os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")]
    print("trainer %d of %d, parameters on %d servers" % (trainer, trainers, len(addresses)), flush=True)

    servers = Servers(addresses)
    parameters = train(servers, trainer, passes, output="output")
    servers.close()

    print("learned  %s" % " ".join("%7.3f" % p for p in parameters), flush=True)
    print("the line %s" % " ".join("%7.3f" % t for t in TRUE), flush=True)
    if farthest_from_truth(parameters) > CLOSE_ENOUGH:
        sys.exit("error: training did not find the line")


if __name__ == "__main__":
    main()
