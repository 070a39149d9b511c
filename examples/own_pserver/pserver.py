"""A parameter server: holds one shard of the model and improves it once per round.

A round ends when every trainer has pushed its gradient; the shard then moves against the mean of them.
Its settings come from the environment PaddleCloud gives every worker.
"""

import json
import os
import signal
import socketserver
import threading

from model import INITIAL, LEARNING_RATE
from wire import shard


class Shard:
    """The parameters of one server and the gradients of the round that is under way."""

    def __init__(self, values, trainers, learning_rate):
        self._values = list(values)
        self._trainers = trainers
        self._learning_rate = learning_rate
        self._round = 0
        self._gradients = {}
        self._changed = threading.Condition()

    def pull(self, round_number):
        """The parameters as of `round_number`; waits until that round has begun."""
        with self._changed:
            self._changed.wait_for(lambda: self._round >= round_number)
            return self._round, list(self._values)

    def push(self, round_number, trainer, gradient):
        """Counts a trainer's gradient once; one of a round that is over changes nothing."""
        if len(gradient) != len(self._values):
            raise ValueError("a gradient of %d for a shard of %d" % (len(gradient), len(self._values)))
        with self._changed:
            if round_number == self._round:
                self._gradients[trainer] = gradient
                if len(self._gradients) == self._trainers:
                    self._step()

    def _step(self):
        for i in range(len(self._values)):
            mean = sum(gradient[i] for gradient in self._gradients.values()) / self._trainers
            self._values[i] -= self._learning_rate * mean
        self._gradients = {}
        self._round += 1
        self._changed.notify_all()


class Handler(socketserver.StreamRequestHandler):
    """Answers one trainer until it hangs up."""

    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            try:
                reply = self._answer(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                reply = {"error": "bad request: %s" % error}
            self.wfile.write(json.dumps(reply).encode() + b"\n")

    def _answer(self, request):
        held = self.server.shard
        if request["op"] == "pull":
            round_number, values = held.pull(request["round"])
            return {"round": round_number, "values": values}
        if request["op"] == "push":
            held.push(request["round"], request["trainer"], request["gradient"])
            return {}
        raise ValueError("unknown op %r" % request["op"])


class ParameterServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address, held):
        super().__init__(address, Handler)
        self.shard = held


def main():
    index = int(os.environ["PADDLE_PSERVER_ID"])
    count = len(os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(","))
    trainers = int(os.environ["PADDLE_INIT_NUM_GRADIENT_SERVERS"])
    held = Shard(shard(INITIAL, index, count), trainers, LEARNING_RATE)

    # Its own address only: every worker of every job has one, so port 7164 serves them all.
    server = ParameterServer((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])), held)
    # `shutdown` waits for the loop below to end, so it must not run on the loop's own thread.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())

    size = len(held.pull(0)[1])
    print("holding %d of %d parameters on %s:%d" % (size, len(INITIAL), *server.server_address), flush=True)
    server.serve_forever()
    server.server_close()
    print("stopped after round %d" % held.pull(0)[0], flush=True)


if __name__ == "__main__":
    main()
