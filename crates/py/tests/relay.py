"""A relay in front of a server that remembers which routes were asked for."""

import re
import socket
import threading

_REQUEST = re.compile(rb"(GET|POST|PUT|DELETE|HEAD) (/[^ ?\r\n]*)[^ \r\n]* HTTP/1\.1\r\n")


class Relay:
    """Passes bytes on between its own port and a server's; `seen` has the method and path of every request."""

    def __init__(self, host, port):
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.seen = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return "127.0.0.1:%d" % self._listener.getsockname()[1]

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # It was closed.
            server = socket.create_connection(self._server)
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source, target, requests):
        rest = b""
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
                if requests:
                    rest = self._look(rest + data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            target.close()

    def _look(self, data):
        """Notes the requests and keeps the last line, which may go on."""
        end = 0
        for found in _REQUEST.finditer(data):
            self.seen.add((found[1].decode(), found[2].decode()))
            end = found.end()
        return data[end:][-2000:]
