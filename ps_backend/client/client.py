"""What a client can ask of the servers of a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from ps_backend.arguments import check_seconds, check_token, server_addresses
from ps_backend.client.arrays import Arrays
from ps_backend.client.barriers import Mailbox, Rounds
from ps_backend.client.connection import Connection
from ps_backend.client.files import Files
from ps_backend.client.keyed import KeySpace
from ps_backend.client.loop import Loop
from ps_backend.client.programs import Ended
from ps_backend.client.server_link import Diagnose, RetryPolicy
from ps_backend.program.keys import HASHED, Partition
from ps_backend.program.sweep import Program
from ps_backend.program.types import ArrayType
from ps_backend.transport import (
    Directory,
    GrpcTransport,
    SameAddressTransport,
    Tls,
    Transport,
    follow_all,
    tls_of,
)
from ps_backend.wire.codec import encode_array
from ps_backend.wire.protocol import titled_secret


class Client(Arrays, Files, Rounds):
    """One sender's connection to all the servers of a session. Thread-safe.

    Every method that sends raises ``ServerLost`` if a server does not answer for about ten seconds
    (``transport/timeouts.py``), and waits for the slowest server, not for the sum. Do not fork
    while one is open: a child process connects for itself.
    """

    @classmethod
    def connect(
        cls,
        addresses: Sequence[str],
        *,
        token: str | None,
        session: str | None = None,
        timeout: float = 10.0,
        retry: float = 5.0,
        tls: str | Path | Tls | None = None,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        eager: bool | None = None,
        diagnose: Diagnose | None = None,
        lease: float | None = None,
        title: str | None = None,
        attach: bool = False,
        restarts: bool = False,
        former: Connection | None = None,
    ) -> Self:
        """Connect to running servers, each ``"host:port"``.

        ``session`` None opens a new one; the ``secret`` of who opened one joins it (with the same
        addresses in the same order). ``lease``: how many seconds the session lives on after this
        process died; by default as the servers say, which is ten minutes. ``timeout``: seconds to
        wait for the servers to answer at all; ``retry``: seconds to wait later for one that went
        silent. ``tls``: file (PEM) with the certificate of the authority that signed the servers';
        ``tls_cert`` and ``tls_key``: those with the client's own, for servers that ask for one.
        ``eager``: make a connection past gRPC to each server, for small requests to other hosts,
        too, which holds a thread there; by default whoever opens a session does, and those who join
        do not, as they may be many. ``title``: of the session that is opened, which must be a new
        one; with ``attach`` it is there, and is taken over from the client that opened it, or from
        who has done so before: its next request raises ``SessionFenced``. What it has published is
        kept (``take_published``). ``restarts``: somebody starts a server that died again, at its
        address; it is waited for, and what it held is lost, as of ``follow``. ``former``: the
        connection whose arrays are to come here (``exchange``). Raises ``ServerLost``,
        ``AuthenticationError``, ``SessionUnknown``.
        """
        if isinstance(addresses, str):
            raise TypeError(f"addresses must be a list of 'host:port', got {addresses!r}")
        addresses = server_addresses(addresses)
        check_token(token)
        check_seconds("timeout", timeout)
        keep = session is None if eager is None else eager
        twice = [address for address in addresses if addresses.count(address) > 1]
        if twice:
            raise ValueError(f"addresses must be of different servers; {twice[0]} is given twice")
        trusted = tls_of(tls, tls_cert, tls_key)
        make = partial(GrpcTransport, token=token, tls=trusted, eager=keep)
        transports: list[Transport] = [
            SameAddressTransport(one, make) if restarts else make(one) for one in addresses
        ]
        titled = None if title is None else titled_secret(title, token)
        return cls._over(
            transports,
            session=session,
            patience=RetryPolicy(timeout),
            retry=RetryPolicy(retry),
            diagnose=diagnose,
            lease=lease,
            titled=titled,
            attach=attach,
            former=former,
        )

    @classmethod
    def follow(
        cls,
        directory: Directory,
        servers: int,
        *,
        token: str | None,
        session: str | None = None,
        timeout: float = 10.0,
        retry: float = 10.0,
        tls: Tls | None = None,
        eager: bool | None = None,
        diagnose: Diagnose | None = None,
        lease: float | None = None,
        former: Connection | None = None,
    ) -> Self:
        """Connect to the servers that ``directory`` knows, and go with them when they move.

        When one was replaced by an empty one, requests that need what was lost raise ``ServerLost``
        with the numbers of the buffers; all others succeed. Otherwise as ``connect``.
        """
        keep = session is None if eager is None else eager
        make = partial(GrpcTransport, token=token, tls=tls, eager=keep)
        transports = follow_all(directory, servers, make, RetryPolicy(timeout).pauses())
        return cls._over(
            transports,
            session=session,
            patience=RetryPolicy(timeout),
            retry=RetryPolicy(retry),
            diagnose=diagnose,
            lease=lease,
            former=former,
        )

    @classmethod
    def _over(cls, transports: Sequence[Transport], **options: Any) -> Self:
        """A client over ``transports``, which are closed if it cannot be had."""
        try:
            return cls(transports, **options)
        except BaseException:
            for transport in transports:
                transport.close()
            raise

    # --- programs ---------------------------------------------------------------------------------

    def run(
        self, program: Program, *, wait: bool = True, ended: Ended | None = None
    ) -> list[list[np.ndarray]] | None:
        """Run ``program`` on every server that holds some of its spaces. One message to each.

        Returns per sweep call a flat list of arrays, in order of its reductions and in the dtypes
        that ``partials.partial_types`` names; of those that locate two, the second of indices. They
        are of shape ``(blocks of the space,)``, one partial result a block, for a reduction of all
        elements; of shape ``row`` along axis 0; ``(k, k')`` of ``gram``; ``(n, *row)`` and
        ``(m, *row)``, the rows themselves, of ``collect`` and ``take``. They may be read-only. With
        ``wait=False`` returns None at once; the reply is awaited before the next message to one
        of these servers, and an error then raised there. ``ended`` is told instead, if given: of
        the error, or None. It hears as well of a program whose wait a KeyboardInterrupt broke off.

        A program with views is awaited in any case, and sent when all before it have ended: the
        servers fetch from one another what they read, which must not change meanwhile.

        If a server refuses, no output of the program exists afterwards. ``program.frees`` leave
        with the next message, once all servers have succeeded.
        """
        self._check_usable()
        return self._programs.run(program, wait=wait, ended=ended)

    def free(self, buffers: Iterable[int]) -> None:
        """Note that nobody holds ``buffers`` any more; they leave with the next messages.

        Never sends and never blocks, so finalizers may call it in any thread.
        """
        self._fan_out.note_frees(buffers)

    # --- what is waited for -----------------------------------------------------------------------

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox ``name``: questions that many wait for, and their answers. No message."""
        return Mailbox(name, self._requests, self._send, self.new_id)

    def loop(self, name: str) -> Loop:
        """The loop ``name`` of the session: ranks with clocks, and a bound on them. No message."""
        return Loop(name, self._requests, self._send)

    def key_space(self, number: int, partition: Partition = HASHED) -> KeySpace:
        """The keyed space of that number, a new one or one that is there. No message."""
        send, new_id = self._send, self.new_id
        return KeySpace(number, self._requests, send, new_id, self.counters, partition)

    # --- commands that a program registered with the servers --------------------------------------

    def call(
        self,
        name: str,
        body: bytes = b"",
        arrays: Iterable[tuple[int, ArrayType]] = (),
    ) -> list[bytes]:
        """Run the command ``name``, which is none of the servers' own: ``Service(commands=...)``.

        It gets ``body`` as it is, and the buffers that it reads as ``arrays``, by their ids.
        Returns each server's answer, in order of the servers. One message to each; repeated where
        an answer is lost, it runs once.
        """
        given = [encode_array(buffer, type) for buffer, type in arrays]
        replies = self._send(self._requests.to_all("custom", name=name, body=body, arrays=given))
        return [replies[server].custom for server in range(self.servers)]
