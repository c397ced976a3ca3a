"""Keeps the packets that come to a host for a while, and loses some: netem for kernels without it.

    python wait_in_line.py SECONDS LOSS

runs in the host's network, where packets are led to queue 0 of netfilter. Only their numbers come
here, the packets stay in the kernel. It ends with its standard input, and needs nothing of the
project.
"""

from __future__ import annotations

import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque

_NETFILTER = 12
_PACKET, _VERDICT, _CONFIG, _VERDICT_BATCH = (3 << 8 | kind for kind in range(4))
_DROP, _ACCEPT = 0, 1
_REQUEST, _ACKNOWLEDGE = 1, 4
_BUFFER_BYTES = 8 << 20
_ERROR = 2


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _message(kind: int, body: bytes, flags: int = _REQUEST) -> bytes:
    """A message about queue 0."""
    head = struct.pack("=IHHII", 20 + len(body), kind, flags, 0, 0)
    return head + struct.pack("!BBH", 0, 0, 0) + body


def _verdict(kind: int, verdict: int, number: int) -> bytes:
    return _message(kind, _attribute(2, struct.pack("!II", verdict, number)))


def _bind(line: socket.socket) -> None:
    """Ask for the numbers of packets, of large ones that the card would cut as well."""
    settings = (
        _attribute(1, struct.pack("!BBH", 1, 0, 0)),  # bind
        _attribute(2, struct.pack("!IB", 0, 1)),  # none of the content
        _attribute(3, struct.pack("!I", 1 << 16)),  # so many packets
        _attribute(4, struct.pack("!I", 4)) + _attribute(5, struct.pack("!I", 4)),  # uncut
    )
    for setting in settings:
        line.send(_message(_CONFIG, setting, _REQUEST | _ACKNOWLEDGE))
        answer = line.recv(4096)
        (code,) = struct.unpack_from("=i", answer, 16)
        if struct.unpack_from("=H", answer, 4)[0] != _ERROR or code:
            raise OSError(-code, os.strerror(-code))


def keep(seconds: float, loss: float) -> None:
    """Let each packet go so many seconds after it came, until standard input ends."""
    line = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    line.bind((0, 0))
    _bind(line)
    line.setblocking(False)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    waiting: deque[tuple[float, int]] = deque()
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable = select.select([line, sys.stdin], [], [], wait)[0]
        if sys.stdin in readable:
            return
        if readable:
            came = time.monotonic()
            for number in _numbers(line):
                if random.random() < loss:
                    line.send(_verdict(_VERDICT, _DROP, number))
                else:
                    waiting.append((came + seconds, number))
        last = 0
        while waiting and waiting[0][0] <= time.monotonic():
            last = waiting.popleft()[1]
        if last:
            line.send(_verdict(_VERDICT_BATCH, _ACCEPT, last))


def _numbers(line: socket.socket) -> list[int]:
    """Of the packets that have come."""
    numbers = []
    while len(numbers) < 64:
        try:
            data = line.recv(4096)
        except BlockingIOError:
            break
        if struct.unpack_from("=H", data, 4)[0] == _PACKET:  # its first attribute has the number
            numbers.append(struct.unpack_from("!I", data, 24)[0])
    return numbers


if __name__ == "__main__":
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    keep(float(sys.argv[1]), float(sys.argv[2]))
