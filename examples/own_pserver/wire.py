"""How trainers and parameter servers talk: one JSON object per line over TCP.

Knows nothing of training; both programs of this example use it.
"""

import json
import socket


def shard(values, index, count):
    """The contiguous part of `values` that parameter server `index` of `count` holds."""
    base, extra = divmod(len(values), count)
    start = index * base + min(index, extra)
    return values[start:start + base + (1 if index < extra else 0)]


def parse_address(text):
    """`127.0.0.1:7164` as a pair that a socket takes."""
    host, _, port = text.strip().rpartition(":")
    return host, int(port)


class Connection:
    """One request, one reply; a closed connection is an error, never an empty reply."""

    def __init__(self, address):
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")

    def ask(self, **request):
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the parameter server closed the connection")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def close(self):
        self._lines.close()
        self._socket.close()
