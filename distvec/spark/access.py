"""How a task joins the driver's session. A Python worker of Spark keeps its clients."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass

from pyspark import TaskContext

from distvec.spark.cluster.registry_service import RemoteDirectory
from distvec.spark.kept import kept
from ps_backend.client import Client, Tls
from ps_backend.errors import ServerLost

_MOST_CLIENTS = 4
_JOIN_SECONDS = 5.0


@dataclass(frozen=True)
class Access:
    """How a task joins the driver's session.

    ``registry``, if there is one, knows where servers are that were replaced meanwhile. ``pipe``:
    keep a stream open to each server, as is worth it for a task that stays. ``tls``: how servers
    are known that serve with it; no secret. ``lives``: where there is no registry, those of the
    servers: who joined them in other lives joins anew.
    """

    addresses: tuple[str, ...]
    token: str
    secret: str
    registry: tuple[str, int] | None = None
    pipe: bool | None = None
    tls: Tls | None = None
    lives: tuple[int, ...] = ()


def join(access: Access) -> Client:
    """This process's client of the session; connects at the first call.

    Raises ServerLost after some seconds, and then at once for as long again: a job has many tasks,
    and they are not to wait one after the other.
    """
    return kept(_Clients).join(access)


class _Clients:
    """The clients of a process, and the sessions that it could not join."""

    def __init__(self) -> None:
        self._joined: dict[Access, Client] = {}
        self._not_joined: dict[Access, tuple[float, ServerLost]] = {}

    def join(self, access: Access) -> Client:
        if access not in self._joined:
            until, error = self._not_joined.pop(access, (0.0, None))
            if error is not None and time.monotonic() < until and not _is_there(access):
                self._not_joined[access] = until, error
                raise error
            while len(self._joined) >= _MOST_CLIENTS:
                oldest = self._joined.pop(next(iter(self._joined)))
                # Its servers may be gone, and closing waits for them.
                threading.Thread(target=oldest.close, daemon=True).start()
            try:
                self._joined[access] = _connect(access)
            except ServerLost as lost:
                self._not_joined[access] = time.monotonic() + 2 * _JOIN_SECONDS, lost
                raise
            _stay_as_they_are()
        return self._joined[access]


def _stay_as_they_are() -> None:
    """Collections of garbage leave out what this process of Spark has loaded by now.

    Spark collects after each task in a process that is used again: some 100,000 objects of loaded
    modules, which takes 30 to 80 ms of a core that the next job, or resident tasks, could have.
    """
    if TaskContext.get() is not None:
        gc.freeze()


def _is_there(access: Access) -> bool:
    """Does the registry know of all servers where they are now?"""
    if access.registry is None:
        return False
    directory = RemoteDirectory(access.registry, access.token)
    return all(directory.locate(server) for server in range(len(access.addresses)))


def _connect(access: Access) -> Client:
    if access.registry is None:
        return Client.connect(
            access.addresses,
            token=access.token,
            session=access.secret,
            timeout=_JOIN_SECONDS,
            tls=access.tls,
            pipe=access.pipe,
        )
    return Client.follow(
        RemoteDirectory(access.registry, access.token),
        len(access.addresses),
        token=access.token,
        session=access.secret,
        timeout=_JOIN_SECONDS,
        tls=access.tls,
        pipe=access.pipe,
    )
