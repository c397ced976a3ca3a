"""Ways to a session: on servers of its own, on running ones, and in another driver's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distvec.durability.policy import Durability
from distvec.session import Directory, Session
from ps_backend.arguments import extensions, parse_size, server_addresses, server_count
from ps_backend.client import Client
from ps_backend.processes.launcher import LocalServers, launch_local


def local(
    servers: int = 2,
    *,
    in_process: bool = False,
    memory: int | str | None = None,
    restart: bool = True,
    durability: str = "none",
    checkpoint: Directory = None,
    plugins: Sequence[str] = (),
    engine: str = "auto",
) -> Session:
    """A session on servers of its own on this machine.

    ``servers`` sub-processes are started, reached through gRPC on loopback, and stopped with the
    session; they end by themselves if this process dies. With ``in_process=True`` the servers are
    objects in this process. ``memory`` is the budget of each server, in bytes or as ``"2g"``.

    A process that dies, or gives no sign for ten seconds, is started again, empty: what needs an
    array of which it held a part raises ``ServerLost``, everything else goes on. One that dies
    three times soon after its start is given up. With ``restart=False`` the first death ends the
    session.

    ``checkpoint``: a directory for checkpoints. With ``durability="rollback"`` the solvers of
    ``optim`` keep their states there, and when a server is lost bring everything back to the last
    one, and go on to the same bits.

    ``plugins``: modules, as ``"package.module"``, whose functions ``dv.rows.plugin`` then runs on
    the servers (docs/how-to/rows.md). ``engine="numexpr"``: they compute by numexpr and NumPy, and
    compile nothing; no bit of a result changes (docs/how-to/make_it_fast.md).
    """
    added = extensions(plugins, engine)
    servers = server_count(servers)
    level = Durability(durability, checkpoint)
    budget = None if memory is None else parse_size(memory)
    if in_process:
        from ps_backend.in_process import connect_in_process  # all that servers consist of

        return Session(
            connect_in_process(servers, memory=budget, extensions=added), durability=level
        )
    started: LocalServers = launch_local(servers, memory=budget, restart=restart, extensions=added)
    token, diagnose = started.token, started.diagnose
    try:
        if restart:
            client = Client.follow(started, servers, token=token, diagnose=diagnose)
        else:
            client = Client.connect(started.addresses, token=token, diagnose=diagnose)
        return Session(client, owner=started, durability=level)
    except BaseException:
        started.stop()
        raise


def connect(
    addresses: str | Sequence[str],
    *,
    token: str | None = None,
    timeout: float = 10.0,
    lease: float | None = None,
    name: str | None = None,
    durability: str = "none",
    checkpoint: Directory = None,
    **tls: Any,
) -> Session:
    """A session on running servers: ``"host:port,host:port"`` or a sequence of addresses.

    ``token`` is what ``distvec serve --token-file`` has in its file. If this process dies, the
    servers free its arrays after ``lease`` seconds: ten minutes, unless they were started with
    another ``--lease``. While it lives it renews the lease by itself. ``name``: within that time
    ``attach`` can take the session over. ``durability`` and ``checkpoint`` as of ``local``; with
    "rollback" a server that died is waited for: whoever keeps the servers is to start another one
    at the same address. Of servers with TLS ``tls="authority.pem"`` is the certificate of who
    signed theirs; ``tls_cert`` and ``tls_key`` are the files of your own, where they ask for it
    (docs/operate/security.md).
    """
    names, level = server_addresses(addresses), Durability(durability, checkpoint)
    client = Client.connect(
        names,
        token=token,
        timeout=timeout,
        lease=lease,
        title=name,
        restarts=level.rolls_back,
        **tls,
    )
    return Session(client, durability=level, name=name)


def attach(
    name: str,
    addresses: str | Sequence[str],
    *,
    token: str | None = None,
    timeout: float = 10.0,
    lease: float | None = None,
    durability: str = "none",
    checkpoint: Directory = None,
    **tls: Any,
) -> Session:
    """Take over the session that was opened by ``connect(addresses, name=name)``.

    For a process that goes on where another one died, or was cut off: should that one be alive, its
    next request raises ``SessionFenced``, and what it has under way counts wholly or not at all.
    What it has published is there, as ``session["w"]``; its other arrays are freed. The addresses,
    their order and the token must be the same; whoever knows them and the name can take it over.
    ``lease``: another one from now on; the rest as of ``connect``. Raises ``SessionUnknown`` if it
    was closed, ``SessionExpired`` if its lease has run out. Four messages a server.
    """
    names, level = server_addresses(addresses), Durability(durability, checkpoint)
    client = Client.connect(
        names,
        token=token,
        timeout=timeout,
        lease=lease,
        title=name,
        attach=True,
        restarts=level.rolls_back,
        **tls,
    )
    try:
        session = Session(client, durability=level, name=name)
        session.names.take()
    except BaseException:
        client.close(leave=True)
        raise
    return session
