"""Abuses a server in one way until it is ended: abuse.py HOST PORT KIND TOKEN.

Prints `abusing` once it is in full swing. Except for `neighbours`, the connections come from addresses of
their own, 127.0.0.2 and up.
"""

import itertools
import json
import socket
import sys
import threading
import time

HOST, PORT, KIND, TOKEN = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
MIB = 1 << 20
counter = itertools.count()


def connect(address=2):
    return socket.create_connection((HOST, PORT), timeout=20, source_address=(f"127.0.0.{address}", 0))


def head(method, path, *headers):
    lines = [f"{method} {path} HTTP/1.1", "host: x", *headers]
    return ("\r\n".join(lines) + "\r\n").encode()


def forever(work):
    """Repeats work; what breaks is begun again after a short pause."""
    while True:
        try:
            work()
        except OSError:
            time.sleep(0.05)


def hold(make, count):
    """Keeps this many connections open in the state that `make` puts them in."""
    held = []
    for number in range(count):
        try:
            held.append(make(number))
        except OSError:
            pass
    swing()
    while True:
        time.sleep(0.2)
        alive = []
        for one in held:
            try:
                one.send(b"x")
                alive.append(one)
            except OSError:
                one.close()
        while len(alive) < count:
            try:
                alive.append(make(len(alive)))
            except OSError:
                break
        held = alive


def threads(work, count):
    for _ in range(count):
        threading.Thread(target=forever, args=(work,), daemon=True).start()
    time.sleep(1)
    swing()
    while True:
        time.sleep(1000)


def swing():
    print("abusing", flush=True)


def answer(one):
    """The beginning of the reply, whatever it is."""
    try:
        return one.recv(4096)
    except OSError:
        return b""


def connections():
    hold(lambda number: connect(2 + number % 3), 1200)


def neighbours():
    """From the address of the other users."""
    hold(lambda number: connect(1), 2500)


def heads():
    """Just below the limit of 32 KiB, and never ended: a longer one is refused at once."""

    def make(number):
        one = connect(2 + number % 3)
        one.sendall(head("GET", "/healthz"))
        one.settimeout(1)
        one.sendall(b"a: " + b"a" * 32_000)
        return one

    hold(make, 600)


def slow():
    def make(number):
        one = connect(2 + number % 3)
        length = f"content-length: {4 * MIB}\r\n"
        one.sendall(head("POST", "/api/v1/jobs", f"authorization: Token {TOKEN}", length))
        one.settimeout(0.2)
        one.sendall(b" " * MIB)
        return one

    hold(make, 300)


def chunks():
    def work():
        with connect() as one:
            one.sendall(head("POST", "/api/v1/jobs", f"authorization: Token {TOKEN}", "transfer-encoding: chunked\r\n"))
            for _ in range(100):
                one.sendall(b"1\r\n \r\n" * 1000)
            one.sendall(b"0\r\n\r\n")
            answer(one)

    threads(work, 16)


def logins():
    def work():
        number = next(counter)
        body = json.dumps({"username": f"user{number % 500}", "password": str(number)}).encode()
        with connect(2 + number % 50) as one:
            one.sendall(head("POST", "/api-token-auth", f"content-length: {len(body)}\r\n") + body)
            answer(one)

    threads(work, 40)


def followers():
    def make(number):
        one = connect(2 + number % 3)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(head("GET", "/api/v1/jobs/chatter/logs?follow=true", f"authorization: Token {TOKEN}", ""))
        return one

    hold(make, 300)


def large_bodies():
    variables = b",".join(b'"v%d":""' % number for number in range(330_000))
    yield "/api/v1/jobs", b'{"envs":{' + variables + b"}}"
    yield "/api/v1/jobs", b'{"colour":[' + b"0," * 1_900_000 + b"0]}"
    yield "/api/v1/jobs", b'{"colour":' + b"[" * 1_900_000
    fields = b",".join(b'"f%d":0' % number for number in range(350_000))
    yield "/api/v1/jobs", b"{" + fields + b"}"
    paths = b",".join(b'"%d"' % number for number in range(400_000))
    yield "/api/v1/pfs/stats", b'{"path":"/pfs/cloud/home/ada","paths":[' + paths + b"]}"
    entry = b'{"path":"f%07d","kind":"file","size":1,"digest":"%064d","mtime":1}'
    files = b",".join(entry % (number, number) for number in range(55_000))
    yield "/api/v1/packages", b'{"version":1,"entries":[' + files + b"]}"
    yield "/api/v1/packages", b'{"version":1,"entries":[' + b"{}," * (15 * MIB) + b"{}]}"


def giant():
    bodies = list(large_bodies())

    def work():
        path, body = bodies[next(counter) % len(bodies)]
        with connect() as one:
            length = f"content-length: {len(body)}\r\n"
            one.sendall(head("POST", path, f"authorization: Token {TOKEN}", length))
            one.sendall(body)
            answer(one)

    threads(work, 16)


def uploads():
    def work():
        number = next(counter)
        path = f"/pfs/cloud/home/ada/abuse/{number % 5000}"
        body = json.dumps({"path": path, "key": str(number), "size": 64 * MIB}).encode()
        with connect() as one:
            login = f"authorization: Token {TOKEN}"
            one.sendall(head("POST", "/api/v1/pfs/uploads", login, f"content-length: {len(body)}\r\n") + body)
            reply = answer(one)
            begun = json.loads(reply[reply.index(b"{"):] or b"{}").get("msg", {})
            if "id" not in begun:
                return
            length = f"content-length: {4 * MIB}\r\n"
            target = f"/api/v1/pfs/uploads/{begun['id']}/ranges?offset=0&len={4 * MIB}"
            one.sendall(head("PUT", target, login, length))
            for _ in range(4):
                one.sendall(b"u" * MIB)
            answer(one)

    def safe():
        try:
            work()
        except ValueError:
            pass

    threads(safe, 40)


def replies():
    """Asks for much and reads nothing."""

    def make(number):
        one = connect(2 + number % 3)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(50):
            one.sendall(head("GET", "/openapi.json", ""))
        return one

    hold(make, 300)


globals()[KIND]()
