"""Holds as many connections to a parameter server as it gets, and proves no secret: flood_pserver.py HOST:PORT COUNT [UID].

Replaces connections that the server closes. Prints `flooding` once it has opened COUNT.
"""

import errno
import os
import resource
import select
import socket
import sys

ADDRESS, COUNT = sys.argv[1], int(sys.argv[2])
HOST, PORT = ADDRESS.rsplit(":", 1)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
if len(sys.argv) > 3:
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))

poll = select.poll()
held = {}
opened = 0
while True:
    while len(held) < COUNT:
        one = socket.socket()
        one.setblocking(False)
        if one.connect_ex((HOST, int(PORT))) not in (0, errno.EINPROGRESS):
            one.close()
            break
        held[one.fileno()] = one
        poll.register(one, select.POLLIN)
        opened += 1
        if opened == COUNT:
            print("flooding", flush=True)
    for number, _ in poll.poll(100):
        try:
            is_open = held[number].recv(4096) != b""
        except BlockingIOError:
            continue
        except OSError:
            is_open = False
        if not is_open:
            poll.unregister(number)
            held.pop(number).close()
