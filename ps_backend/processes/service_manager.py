"""Messages to systemd: the server is ready, it is alive, it stops."""

from __future__ import annotations

import os
import socket
import time


class ServiceManager:
    """The service manager that started this process, if there is one.

    It is named by ``NOTIFY_SOCKET``, and expects a sign of life at least every ``WATCHDOG_USEC``
    microseconds, if that is set: see ``sd_notify(3)``.
    """

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        own = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._seconds = float(os.environ.get("WATCHDOG_USEC", "0")) / 1e6 if own else 0.0
        self._told = time.monotonic()

    def notify(self, *states: str) -> None:
        """Send ``states``, such as ``READY=1``; returns at once, also if it does not listen."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            try:
                sender.sendto("\n".join(states).encode(), address)
            except OSError:
                return  # it restarts, or its queue is full: the next message may arrive
        self._told = time.monotonic()

    def keep_alive(self) -> None:
        """Send a sign of life if half of the time for it is over."""
        if self._seconds and time.monotonic() - self._told > self._seconds / 2:
            self.notify("WATCHDOG=1")
