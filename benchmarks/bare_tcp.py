"""Two hosts that give each other as many bytes at the same time, over one bare TCP connection.

Without an address it listens, and prints "ready"; with one it connects, and prints seconds.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from statistics import median

from tests.cluster.hosts import Host

_PORT = 7071
_ROUNDS = 7


def exchange_seconds(one: Host, other: Host, count: int) -> float:
    """The median of some rounds in which each gets ``count`` bytes of the other."""
    words = (sys.executable, "-m", "benchmarks.bare_tcp", str(count))
    with one.start(*words, stdout=subprocess.PIPE) as listener:
        listener.stdout.readline()
        return float(other.run(*words, one.address))


def _exchange(connection: socket.socket, given: bytes, into: memoryview) -> None:
    sender = threading.Thread(target=connection.sendall, args=(given,))
    sender.start()
    came = 0
    while came < len(into):
        came += connection.recv_into(into[came:])
    sender.join()


def _main(count: int, address: str | None) -> None:
    given, into = bytes(count), memoryview(bytearray(count))
    if address is None:
        with socket.create_server(("", _PORT)) as listener:
            print("ready", flush=True)
            connection, _ = listener.accept()
    else:
        connection = socket.create_connection((address, _PORT))
    times = []
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            _exchange(connection, given, into)
            times.append(time.perf_counter() - began)
    if address is not None:
        print(median(times))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
