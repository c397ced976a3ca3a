"""Ways to a session: on servers of its own, on running ones, and in another driver's place."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path

from distvec.durability.policy import Durability
from distvec.session import Directory, Opener, Owner, Session
from ps_backend.arguments import extensions, parse_size, server_addresses, server_count
from ps_backend.client import Client
from ps_backend.limits import check
from ps_backend.processes.launcher import launch_local


def local(
    servers: int = 2,
    *,
    in_process: bool = False,
    memory: int | str | None = None,
    restart: bool = True,
    spares: int = 0,
    durability: str = "none",
    checkpoint: Directory = None,
    plugins: Sequence[str] = (),
    engine: str = "auto",
) -> Session:
    """Start parameter servers on this machine, and open a session on them.

    Parameters
    ----------
    servers : int, default 2
        Number of server processes. They listen on the loopback address, stop with the session,
        and exit by themselves if this process dies.
    in_process : bool, default False
        Run the servers as objects in this process, without sockets; useful for tests.
    memory : int or str, optional
        Memory limit of each server: bytes, or a string like ``"2g"``. Default: an equal share of
        80 % of the machine's memory.
    restart : bool, default True
        Whether to replace a server that exits or does not respond for ten seconds. The new one is
        empty. With ``False``, the first exit ends the session.
    spares : int, default 0
        Number of processes, at most ``servers``, that wait to replace a server, so that no
        operation waits for the start of a process. Each takes about 60 MB of memory.
    durability : {"none", "rollback", "replay"}, default "none"
        With "replay", all arrays are restored after a server is lost, and the interrupted operation
        continues. With "rollback", only the solvers of ``optim`` continue, from their last
        checkpoint. In both cases results are bitwise identical to an uninterrupted run.
    checkpoint : str or path-like, optional
        Directory or URL of checkpoints. Required by "rollback" and "replay".
    plugins : sequence of str, optional
        Modules, such as ``"package.module"``, with functions that ``dv.rows.plugin`` can run on
        the servers.
    engine : {"auto", "numexpr"}, default "auto"
        With "numexpr", servers compute with numexpr and NumPy, and compile no code. Results are
        bitwise identical.

    Returns
    -------
    Session
        The session. Close it, or use it in a ``with`` statement.

    Raises
    ------
    ValueError
        If an argument is out of range, or ``durability`` needs ``checkpoint``.
    PSError
        If a server does not start.

    See Also
    --------
    connect : Open a session on running servers.

    Notes
    -----
    After a server was replaced, operations on an array that had a part on it raise ``ServerLost``;
    other arrays stay usable. With ``durability="replay"`` they wait and succeed. A server that
    exits three times soon after its start is not replaced again.

    Examples
    --------
    >>> with dv.local(2, in_process=True) as session:
    ...     x = session.arange(5.0)
    ...     print(float(x @ x))
    30.0
    """
    added = extensions(plugins, engine)
    level = Durability(durability, checkpoint)
    check("spares", operator.index(spares), 0, server_count(servers))
    if spares and (in_process or not restart):
        raise ValueError("spares= replace server processes: leave out in_process and restart=False")
    budget = None if memory is None else parse_size(memory)

    def begin(servers: int, former: Client | None = None) -> tuple[Client, Owner | None]:
        servers = server_count(servers)
        if in_process:
            from ps_backend.in_process import connect_in_process  # all that servers consist of

            made = connect_in_process(servers, memory=budget, extensions=added, former=former)
            return made, None
        started = launch_local(
            servers, memory=budget, restart=restart, extensions=added, spares=spares
        )
        token, diagnose = started.token, started.diagnose
        try:
            if restart:
                client = Client.follow(
                    started, servers, token=token, diagnose=diagnose, former=former
                )
            else:
                client = Client.connect(
                    started.addresses, token=token, diagnose=diagnose, former=former
                )
        except BaseException:
            started.stop()
            raise
        return client, started

    client, owner = begin(servers)
    try:
        return Session(client, owner=owner, durability=level, opener=Opener(begin, has_disk=True))
    except BaseException:
        client.close()
        if owner is not None:
            owner.stop()
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
    tls: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
) -> Session:
    """Open a session on running servers.

    Parameters
    ----------
    addresses : str or sequence of str
        Addresses of all servers: ``"host:port,host:port"`` or a list.
    token : str, optional
        The secret in the file of ``distvec serve --token-file``.
    timeout : float, default 10.0
        Seconds to wait for the first reply of each server.
    lease : float, optional
        Seconds for which the servers keep the session after its client disappears. A living client
        renews the lease by itself. Default: ``distvec serve --lease``, ten minutes.
    name : str, optional
        Name by which ``attach`` can take over the session within its lease.
    durability : {"none", "rollback", "replay"}, default "none"
        With "rollback" and "replay", the session waits for a replacement of a lost server at the
        same address. With "replay", all arrays are restored then. With "rollback", solvers resume
        from their last checkpoint.
    checkpoint : str or path-like, optional
        Directory or URL of checkpoints. Required by "rollback" and "replay".
    tls : str or path-like, optional
        PEM file with the certificate of the authority that signed the servers' certificates.
        Default: no TLS.
    tls_cert, tls_key : str or path-like, optional
        PEM files with the client's own certificate and key, if the servers require them.

    Returns
    -------
    Session
        The session. Close it, or use it in a ``with`` statement.

    Raises
    ------
    ServerLost
        If a server does not answer within ``timeout``.
    AuthenticationError
        If the token is missing or wrong.
    PSError
        If a session with this name exists.
    ValueError
        If an address or an option is malformed.

    See Also
    --------
    attach : Take over a session by its name.
    local : Start servers on this machine.

    Examples
    --------
    >>> with dv.connect(addresses, token=token) as session:
    ...     print(session.ones(3).numpy())
    [1. 1. 1.]
    """
    level = Durability(durability, checkpoint)

    def begin(
        addresses: str | Sequence[str], former: Client | None = None
    ) -> tuple[Client, Owner | None]:
        client = Client.connect(
            server_addresses(addresses),
            token=token,
            timeout=timeout,
            lease=lease,
            title=name,
            restarts=level.survives,
            tls=tls,
            tls_cert=tls_cert,
            tls_key=tls_key,
            former=former,
        )
        return client, None

    client, _ = begin(addresses)
    opener = Opener(begin, has_disk=False)
    return Session(client, durability=level, name=name, opener=opener)


def attach(
    name: str,
    addresses: str | Sequence[str],
    *,
    token: str | None = None,
    timeout: float = 10.0,
    lease: float | None = None,
    durability: str = "none",
    checkpoint: Directory = None,
    tls: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
) -> Session:
    """Take over a session that was opened by ``connect(addresses, name=name)``.

    Use it to continue in a new process after the previous driver died or lost its connection.

    Parameters
    ----------
    name : str
        Name of the session.
    addresses : str or sequence of str
        The same addresses in the same order as for ``connect``.
    token : str, optional
        The same token as for ``connect``.
    timeout : float, default 10.0
        Seconds to wait for the first reply of each server.
    lease : float, optional
        New lease of the session in seconds. Default: the lease stays as it is.
    durability : {"none", "rollback", "replay"}, default "none"
        Level of durability, see ``connect``.
    checkpoint : str or path-like, optional
        Directory or URL of checkpoints. Required by "rollback" and "replay".
    tls : str or path-like, optional
        PEM file with the certificate of the servers' authority, see ``connect``.
    tls_cert, tls_key : str or path-like, optional
        PEM files with the client's own certificate and key, see ``connect``.

    Returns
    -------
    Session
        The session with its published arrays, as ``session["w"]``. Other arrays are freed.

    Raises
    ------
    SessionUnknown
        If no session has this name, for example after it was closed.
    SessionExpired
        If the lease of the session ran out.

    See Also
    --------
    distvec.Session.publish : Give arrays names for the next driver.
    distvec.Session.detach : Leave a session without closing it.

    Notes
    -----
    Four requests per server. If the previous driver is still alive, its next request raises
    ``SessionFenced``; a request that is being processed takes effect completely or not at all.

    Examples
    --------
    >>> session = dv.connect(addresses, token=token, name="run8")
    >>> session.publish(w=session.array([1.0, 2.0]))
    >>> session.detach()
    >>> with dv.attach("run8", addresses, token=token) as session:
    ...     print(session["w"].numpy())
    [1. 2.]
    """
    names, level = server_addresses(addresses), Durability(durability, checkpoint)
    client = Client.connect(
        names,
        token=token,
        timeout=timeout,
        lease=lease,
        title=name,
        attach=True,
        restarts=level.survives,
        tls=tls,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )
    try:
        session = Session(client, durability=level, name=name)
        session.names.take()
        if level.replays:  # what was there before goes along
            session.checkpoint()
    except BaseException:
        client.close(leave=True)
        raise
    return session
