"""What a client can ask of the servers of a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from ps_backend.arguments import check_seconds, check_token, server_addresses
from ps_backend.client.arrays import SharedArray, StoredArray
from ps_backend.client.connection import Connection
from ps_backend.client.interrupts import uninterrupted
from ps_backend.client.loop import Loop
from ps_backend.client.mailbox import Mailbox
from ps_backend.client.programs import Ended
from ps_backend.client.requests import Messages
from ps_backend.client.selection import check_indices
from ps_backend.client.server_link import Diagnose, RetryPolicy
from ps_backend.limits import MOST_FORCED_BYTES
from ps_backend.program.spaces import RaggedSpace, Space
from ps_backend.program.sweep import Program
from ps_backend.program.types import ArrayType
from ps_backend.transport import Directory, OverGrpc, Transport, follow_all
from ps_backend.wire.codec import encode_array
from ps_backend.wire.rounds import Total, Winner

_MOST_KEPT_BYTES = 1 << 16
"""Contributions of a round that a server may keep, once it is over, until it hears from us."""


class Client(Connection):
    """One sender's connection to all the servers of a session. Thread-safe.

    Every method that sends raises ``ServerLost`` if a server does not answer for about ten seconds
    (``transport/liveness.py``), and waits for the slowest server, not for the sum. Do not fork
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
        tls: str | Path | None = None,
        pipe: bool | None = None,
        diagnose: Diagnose | None = None,
        lease: float | None = None,
    ) -> Self:
        """Connect to running servers, each ``"host:port"``.

        ``session`` None opens a new one; the ``secret`` of who opened one joins it (with the same
        addresses in the same order). ``lease``: how many seconds the session lives on after this
        process died; by default as the servers say, which is ten minutes. ``timeout``: seconds to
        wait for the servers to answer at all; ``retry``: seconds to wait later for one that went
        silent. ``tls``: file with the certificate of the authority that signed the servers'.
        ``pipe``: keep a stream open to each server, which halves the work of small requests and
        holds a thread there; by default whoever opens a session does, and those who join do not, as
        they may be many. Raises ``ServerLost``, ``AuthenticationError``.
        """
        if isinstance(addresses, str):
            raise TypeError(f"addresses must be a list of 'host:port', got {addresses!r}")
        addresses = server_addresses(addresses)
        check_token(token)
        check_seconds("timeout", timeout)
        keep = session is None if pipe is None else pipe
        twice = [address for address in addresses if addresses.count(address) > 1]
        if twice:
            raise ValueError(f"each address must be another server's; {twice[0]} is given twice")
        transports = [OverGrpc(address, token=token, tls=tls, pipe=keep) for address in addresses]
        return cls._over(transports, session, timeout, retry, diagnose, lease)

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
        pipe: bool | None = None,
        diagnose: Diagnose | None = None,
        lease: float | None = None,
    ) -> Self:
        """Connect to the servers that ``directory`` knows, and go with them when they move.

        When one was replaced by an empty one, requests that need what was lost raise ``ServerLost``
        with the numbers of the buffers; all others succeed. Otherwise as ``connect``.
        """
        keep = session is None if pipe is None else pipe
        make = partial(OverGrpc, token=token, pipe=keep)
        transports = follow_all(directory, servers, make, RetryPolicy(timeout).pauses())
        return cls._over(transports, session, timeout, retry, diagnose, lease)

    @classmethod
    def _over(
        cls,
        transports: Sequence[Transport],
        session: str | None,
        timeout: float,
        retry: float,
        diagnose: Diagnose | None,
        lease: float | None,
    ) -> Self:
        """A client over ``transports``, which are closed if it cannot be had."""
        try:
            return cls(
                transports,
                session=session,
                retry=RetryPolicy(retry),
                patience=RetryPolicy(timeout),
                diagnose=diagnose,
                lease=lease,
            )
        except BaseException:
            for transport in transports:
                transport.close()
            raise

    # --- programs ---------------------------------------------------------------------------------

    def new_id(self) -> int:
        """A buffer id that nobody else in the session uses. No message."""
        return next(self._numbers)

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

    # --- dense ------------------------------------------------------------------------------------

    def write(self, buffer: int, space: Space, values: npt.ArrayLike) -> None:
        """Make ``buffer`` from ``values``, shape ``(space.length, ...)``. One message a server."""
        self._send(self._requests.write(buffer, space, values), made=[buffer])
        self.counters.count_vectors(written=1)

    def read(self, buffer: int, type: ArrayType, out: np.ndarray | None = None) -> np.ndarray:
        """All values of ``buffer``, of shape ``type.shape``. One message a server.

        ``out``: C-contiguous array of that dtype and shape to read into. Raises ``BufferLost``.
        """
        kind, shape = type.dtype, type.shape
        target = np.empty(shape, kind) if out is None else out
        if target.dtype != kind or target.shape != shape or not target.flags.c_contiguous:
            raise ValueError(
                f"out must be C-contiguous, {kind} and of shape {shape}, got {target.dtype} of "
                f"shape {target.shape}"
            )
        self._send(self._requests.read(buffer, type, target), recorded=False)
        self.counters.count_vectors(read=1)
        return target

    def read_rows(self, buffer: int, type: ArrayType, start: int, stop: int) -> np.ndarray:
        """The rows ``start:stop`` of ``buffer``, ``0 <= start <= stop <= length``.

        One message to each server that holds some. Raises ``BufferLost``.
        """
        if not 0 <= start <= stop <= type.space.length:
            raise IndexError(f"rows {start}:{stop} are not within 0:{type.space.length}")
        found = np.empty((stop - start, *type.row), type.dtype)
        self._send(self._requests.read_rows(buffer, type, start, stop, found), recorded=False)
        return found

    # --- sparse -----------------------------------------------------------------------------------

    def gather(self, buffer: int, type: ArrayType, indices: npt.ArrayLike) -> np.ndarray:
        """The rows of ``buffer`` at ``indices``, shape ``(k, *type.row)``, in their order.

        ``indices``: integers of shape ``(k,)``, any order, duplicates allowed. One message to each
        server that holds one of them. Raises ``IndexError``, ``BufferLost``.
        """
        return self._gather(buffer, type, indices)

    def _gather(
        self, buffer: int, type: ArrayType, indices: npt.ArrayLike, *, shared: bool = False
    ) -> np.ndarray:
        wanted = check_indices(indices, type.space.length)
        found = np.empty((len(wanted), *type.row), type.dtype)
        messages, scattered = self._requests.gather(buffer, type, wanted, found, shared=shared)
        self._send(messages, recorded=False)
        for selection, values in scattered:
            found[selection] = values
        return found

    def scatter_add(
        self,
        source: int,
        target: int,
        type: ArrayType,
        indices: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        donate: bool,
        ended: Ended | None = None,
    ) -> None:
        """Make ``target``: ``source`` with ``values`` added at ``indices``. One message a server.

        ``indices``: shape ``(k,)``; ``values``: ``(k, *type.row)``; duplicates add up in the order
        given. ``donate``: the memory of ``source`` is reused and ``source`` ceases to exist; nobody
        else may be using it. More than 1 MiB for a server then takes two messages, so that one that
        lacks the memory for it refuses before another has given anything away. ``ended``: as in
        ``run``.
        """
        messages = self._requests.scatter_add(source, target, type, indices, values, donate)
        large = max(sum(map(len, message.payload)) for message in messages.values())
        if donate and large > MOST_FORCED_BYTES:
            messages = self._staged(f"push {target}", messages)
        self._send(messages, made=[target], ended=ended)

    def _staged(self, round: str, messages: Messages) -> Messages:
        """Stage the pairs, which a server may refuse; returns the messages without them."""
        staged, bare = self._requests.in_two_steps(round, messages)
        try:
            self._send(staged)
        except Exception:
            self.drop_round(round)
            raise
        return bare

    # --- masks ------------------------------------------------------------------------------------

    def compress(
        self,
        source: int,
        type: ArrayType,
        mask: int,
        target: int,
        chosen: RaggedSpace,
        single: bool = False,
    ) -> None:
        """Make ``target``, over ``chosen``: the rows of ``source`` where ``mask`` is true.

        ``mask``: a buffer of booleans over the space of ``type``; ``single``: with rows of the same
        shape, so that it chooses single elements. One message to each server that holds some of it.
        ``InvalidProgram`` where another number of them is true.
        """
        messages = self._requests.by_mask(
            "compress", source, type, mask, chosen, target=target, single=single
        )
        self._send(messages, made=[target])
        self.counters.count_vectors(read=2, written=1)

    def expand(
        self,
        source: int,
        type: ArrayType,
        mask: int,
        values: int,
        target: int,
        chosen: RaggedSpace,
        single: bool = False,
    ) -> None:
        """Make ``target``: ``source`` with the rows of ``values``, over ``chosen``, put in order
        where ``mask`` is true. Messages and errors as of ``compress``.
        """
        messages = self._requests.by_mask(
            "expand", source, type, mask, chosen, values=values, target=target, single=single
        )
        self._send(messages, made=[target])
        self.counters.count_vectors(read=3, written=1)

    # --- shared arrays ----------------------------------------------------------------------------

    def share(self, sources: Sequence[int], arrays: Sequence[SharedArray]) -> None:
        """Make the shared ``arrays``, copies of the buffers ``sources``. One message a server."""
        numbers = [array.number for array in arrays]
        stored = [
            StoredArray(buffer, array.type) for buffer, array in zip(sources, arrays, strict=True)
        ]
        self._send(self._requests.copies("share", stored, numbers), made=numbers)

    def pull(self, array: SharedArray, indices: npt.ArrayLike | None = None) -> np.ndarray:
        """The values of now, all or the rows at ``indices``; others may add meanwhile.

        One message to each server that holds some. Errors as of ``read`` and ``gather``.
        """
        if indices is not None:
            return self._gather(*array, indices, shared=True)
        found = np.empty(array.type.shape, array.type.dtype)
        self._send(self._requests.read(*array, found, shared=True), recorded=False)
        self.counters.count_vectors(read=1)
        return found

    def update(self, array: SharedArray, indices: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Add ``values`` at ``indices`` in place, for whoever shares the array.

        One message to each server that holds one of them; what several clients send is added in
        the order in which it comes.
        """
        self._send(self._requests.update(array, indices, values))

    def snapshot(
        self, arrays: Sequence[SharedArray], targets: Sequence[int], *, last: bool = False
    ) -> None:
        """Make the buffers ``targets`` with the values of ``arrays``. One message a server.

        ``last``: the arrays become the buffers and are over; that takes no memory.
        """
        messages = self._requests.copies("snapshot", arrays, targets, last=last)
        self._send(messages, made=targets)

    # --- rounds -----------------------------------------------------------------------------------

    def stage(
        self,
        round: str,
        partition: int,
        attempt: int,
        space: Space,
        indices: npt.ArrayLike | None,
        values: npt.ArrayLike,
        *,
        slot: int = 0,
        number: int = 0,
    ) -> None:
        """Keep a contribution to ``round`` until it is committed. One message a server.

        ``indices``: shape ``(k,)``; ``values``: ``(k, ...)``; duplicates count each. ``indices``
        None: all of the space, in order. ``slot`` says to which array of the round, ``number``
        which of this attempt's contributions to it. Staging again under the same four numbers
        replaces. Raises ``RoundClosed`` if the round is over.
        """
        messages: Messages = {}
        for server, share in self._requests.shares(space, indices, values):
            message = messages[server] = self._requests.message(
                "stage",
                round=round,
                partition=partition,
                attempt=attempt,
                slot=slot,
                number=number,
                type=share.type,
            )
            share.describe(message.request.stage)
            message.payload = share.payload
        self._send(messages)

    def commit(
        self,
        round: str,
        winners: Sequence[tuple[int, int]],
        type: ArrayType,
        target: int,
    ) -> None:
        """Make ``target``: zeros plus what the winners staged. One message a server.

        ``winners``: (partition, attempt), one attempt per partition; they are added in ascending
        order of partition, everything else of the round is dropped, and the round is closed.
        Raises ``PSError`` if a winner staged nothing, and then nothing has changed.
        """
        ordered = sorted(Winner(*winner) for winner in winners)
        if len({winner.partition for winner in ordered}) != len(ordered):
            raise ValueError(f"round {round!r}: a partition may win once, got {winners}")
        self.commit_totals(round, [Total(target, type, ordered)])

    def commit_totals(self, round: str, totals: Sequence[Total]) -> None:
        """Make all ``totals`` and close the round, or change nothing. One message a server.

        Raises ``PSError`` if a winner staged less than it says.
        """
        done: list[int] = []
        self._check_usable()
        with uninterrupted():
            try:
                replies = self._fan_out.send(
                    self._requests.commit(round, totals),
                    after=lambda replies, error: done.extend(replies if error else ()),
                )
            except Exception:
                targets = [total.target for total in totals]
                self._send(self._requests.each(done, "reopen", round=round, targets=targets))
                raise
            large = [server for server, reply in replies.items() if reply.kept > _MOST_KEPT_BYTES]
            if large:  # all have agreed: nothing will be taken back
                self._fan_out.send_unawaited(self._requests.each(large, "nothing"))

    def drop_round(self, round: str) -> None:
        """End ``round`` without a result; later stages are refused. One message a server."""
        self._send(self._requests.to_all("drop_round", round=round))

    # --- what is waited for -----------------------------------------------------------------------

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox ``name``: questions that many wait for, and their answers. No message."""
        return Mailbox(name, self._requests, self._send, self.new_id)

    def loop(self, name: str) -> Loop:
        """The loop ``name`` of the session: ranks with clocks, and a bound on them. No message."""
        return Loop(name, self._requests, self._send)

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
