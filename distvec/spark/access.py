"""How a task joins the driver's session.

Two caches live as long as a Python worker of Spark does (it is reused by later jobs): its clients,
and the sessions that it could not join.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from distvec.spark.cluster.registry_service import RemoteDirectory
from ps_backend.client import Client
from ps_backend.errors import ServerLost

_MOST_CLIENTS = 4
_JOIN_SECONDS = 5.0


@dataclass(frozen=True)
class Access:
    """How a task joins the driver's session.

    ``registry``, if there is one, knows where servers are that were replaced meanwhile. ``pipe``:
    keep a stream open to each server, as is worth it for a task that stays.
    """

    addresses: tuple[str, ...]
    token: str
    secret: str
    registry: tuple[str, int] | None = None
    pipe: bool | None = None


_clients: dict[tuple[int, Access], Client] = {}
_not_joined: dict[tuple[int, Access], tuple[float, ServerLost]] = {}


def join(access: Access) -> Client:
    """This process's client of the session; connects at the first call.

    Raises ServerLost after some seconds, and then at once for as long again: a job has many tasks,
    and they are not to wait one after the other.
    """
    key = (os.getpid(), access)
    if key not in _clients:
        until, error = _not_joined.pop(key, (0.0, None))
        if error is not None and time.monotonic() < until and not _is_there(access):
            _not_joined[key] = until, error
            raise error
        while len(_clients) >= _MOST_CLIENTS:
            oldest = _clients.pop(next(iter(_clients)))
            # Its servers may be gone, and closing waits for them.
            threading.Thread(target=oldest.close, daemon=True).start()
        _clients[key] = _connect(key, access)
    return _clients[key]


def _is_there(access: Access) -> bool:
    """Does the registry know of all servers where they are now?"""
    if access.registry is None:
        return False
    directory = RemoteDirectory(access.registry, access.token)
    return all(directory.locate(server) for server in range(len(access.addresses)))


def _connect(key: tuple[int, Access], access: Access) -> Client:
    try:
        if access.registry is None:
            return Client.connect(
                access.addresses,
                token=access.token,
                session=access.secret,
                timeout=_JOIN_SECONDS,
                pipe=access.pipe,
            )
        return Client.follow(
            RemoteDirectory(access.registry, access.token),
            len(access.addresses),
            token=access.token,
            session=access.secret,
            timeout=_JOIN_SECONDS,
            pipe=access.pipe,
        )
    except ServerLost as error:
        _not_joined[key] = time.monotonic() + 2 * _JOIN_SECONDS, error
        raise
