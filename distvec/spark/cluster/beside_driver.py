"""Servers beside the driver, for ``local[N]``: tasks there would take the slots of all other jobs.

Each is supervised by a thread, so that one that is lost is replaced as on a cluster.
"""

from __future__ import annotations

import os
import threading

from distvec.spark.cluster.parent_watch import SupervisedServers
from distvec.spark.cluster.supervise import DriverDesk, Supervisor
from ps_backend.arguments import NO_EXTENSIONS, Extensions
from ps_backend.errors import PSError

_HOST = "127.0.0.1"
_STOP_SECONDS = 10.0


class DriverServers(SupervisedServers):
    """They end with the driver's process even if it is killed."""

    def __init__(
        self,
        servers: int,
        *,
        memory: int | None = None,
        threads: int | None = None,
        tls: bool | None = None,
        extensions: Extensions = NO_EXTENSIONS,
    ) -> None:
        """``memory``: budget of each in bytes; an equal share of 80 % of the machine's by default.

        ``threads`` of each: by default they share the machine's cores equally. ``tls`` None: they
        serve without, as only this machine reaches them.
        """
        share = max(1, (os.cpu_count() or 1) // max(1, servers))
        super().__init__(
            servers,
            host=_HOST,
            bind=_HOST,
            memory=memory,
            threads=share if threads is None else threads,
            tls=tls,
            extensions=extensions,
        )
        self._threads = [
            threading.Thread(
                target=self._supervise, args=(k,), name=f"distvec-server-{k}", daemon=True
            )
            for k in range(servers)
        ]

    def _begin(self, deadline: float) -> None:
        for thread in self._threads:
            thread.start()

    def _end(self) -> None:
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_STOP_SECONDS)

    def _supervise(self, number: int) -> None:
        try:
            signer = None if self.authority is None else self.authority.signer
            Supervisor(self._orders, number, number, DriverDesk(self.registry, signer)).run()
        except PSError as error:
            self._give_up(str(error))
