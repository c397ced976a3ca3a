"""The client's side of running programs: who gets which calls, and how the answers fit together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ps_backend.client.counters import Counters
from ps_backend.client.fan_out import After, FanOut, Replies
from ps_backend.client.requests import Requests
from ps_backend.client.server_link import Message
from ps_backend.client.signals import defer_signals
from ps_backend.program.partials import Run, concatenate, finished, partial_types
from ps_backend.program.spaces import Space
from ps_backend.program.sweep import Program, Sweep, SweepCall
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_call, encode_collective, encode_sweep, note_sweep

_MOST_REMEMBERED = 4096
_NUMBER_BYTES, _REPLY_BYTES = 8, 9
"""Of the numbers of a request, and of a reply without partial results."""

RunSmall = Callable[[pb.Request, Sequence[SweepCall], Sequence[int]], list[np.ndarray] | None]
"""Runs calls on a server of this process: see ``ps_backend.server.service``."""

Ended = Callable[[Exception | None], None]
"""Gets the error of a request whose replies have come, None if all is well."""


@dataclass(frozen=True, slots=True)
class _Route:
    """Who takes part in calls of some sweeps over some spaces. Of each call:"""

    calls: Sequence[tuple[Sweep, Space]]
    """its sweep and space,"""
    holders: Sequence[Sequence[int]]
    """its servers, in order of the slots,"""
    shares: Mapping[int, Sequence[int]]
    """and of each server its calls, by their numbers,"""
    digests: Mapping[int, Set[str]]
    """the digests of these,"""
    sent: list[int]
    """and, once it is asked for, the bytes of their message."""


class Dispatcher:
    """Runs programs over the links of one client."""

    def __init__(self, requests: Requests, fan_out: FanOut, counters: Counters) -> None:
        self._requests, self._fan_out, self._counters = requests, fan_out, counters
        self._servers = requests.servers
        self._routes: dict[tuple[int, ...], _Route] = {}
        """By ids of sweeps and spaces, which they keep alive."""
        transports = [link.transport for link in fan_out.links]
        ways = [getattr(transport, "run_small", None) for transport in transports]
        self._here: list[RunSmall] = [way for way in ways if way is not None]
        """By server, if all are in this process."""
        if len(self._here) < len(transports):
            self._here.clear()
        self._sender = requests.request()
        self._header_bytes = self._sender.ByteSize() + _NUMBER_BYTES

    def run(
        self, program: Program, *, wait: bool, ended: Ended | None
    ) -> list[list[np.ndarray]] | None:
        """As ``Client.run``."""
        calls, fan_out = program.calls, self._fan_out
        key = tuple([id(one) for call in calls for one in call[:2]])  # their sweeps and spaces
        route = self._routes.get(key) or self._route(key, calls)
        servers: Set[int] = route.shares.keys()
        if program.before or program.after:
            collectives = (*program.before, *program.after)
            servers = servers | {k for one in collectives for k in one.servers(self._servers)}
        elif servers and self._here and fan_out.is_idle and fan_out.journal is None:
            results = self._run_here(program, route)
            if results is not None:
                if ended is not None:
                    ended(None)
                return results if wait else None
        if not servers:
            fan_out.note_frees(program.frees)
            if ended is not None:
                ended(None)
            return [] if wait else None
        encoded = [encode_call(call, full=False) for call in calls]
        new: list[tuple[int, str]] = []
        whole: dict[str, pb.Sweep] = {}
        messages = {}
        for server in servers:
            given = [(calls[k], encoded[k]) for k in route.shares.get(server, ())]
            messages[server] = self._message(server, given, new, whole)
        after = self._after(program, new, ended)
        viewing = bool(program.before or program.after or [call for call in calls if call.views])
        if viewing:
            fan_out.await_all()  # what servers fetch from one another is there, and stays
            addresses = [link.transport.address for link in fan_out.links]
            lives = [link.life for link in fan_out.links]  # of where they are now, or later
            for server, message in messages.items():
                message.request.run.peers.extend(addresses)
                message.request.run.lives.extend(lives)
                self._add_collectives(message.request.run, program, server)
        if not wait:
            fan_out.send_unawaited(messages, after=after, quiet=ended is not None)
            if viewing:
                fan_out.await_all()
            return None
        replies = fan_out.send(messages, after=after)
        return _assemble(program, route.holders, self._servers, replies)

    def _run_here(self, program: Program, route: _Route) -> list[list[np.ndarray]] | None:
        """The results of a small program that the servers, all in this process, ran before.

        None where they did not, or one refuses: then no output exists, and a message tells why.
        It counts as the messages that it saves.
        """
        began = start = time.perf_counter()
        fan_out, calls, shares = self._fan_out, program.calls, route.shares
        made: dict[int, list[np.ndarray]] = {}
        counts: list[tuple[int, int, int, float]] = []
        with defer_signals():
            frees = fan_out.take_frees()
            for server, link in enumerate(fan_out.links):
                numbers = shares.get(server, ())
                if not (numbers or frees):
                    continue
                own = calls if len(numbers) == len(calls) else [calls[k] for k in numbers]
                found = None
                known = not numbers or link.known_sweeps.issuperset(route.digests[server])
                if known and not link.has_frees:
                    with suppress(Exception):  # the message that follows meets it, too
                        found = self._here[server](self._sender, own, frees)
                if found is None:
                    fan_out.take_back(program.made, made)
                    fan_out.take_back(frees, range(server, self._servers))
                    return None
                end = time.perf_counter()
                if numbers:
                    made[server] = found
                    sent = route.sent[server] or self._bytes_of(server, route, own)
                    received = sum([one.nbytes + 2 for one in found], _REPLY_BYTES)
                    counts.append((server, sent, received, end - start))
                start = end
        if len(made) == 1 and not any(call.sweep.leaves_rows for call in calls):
            arrays = iter(*made.values())
            results = [[next(arrays) for _ in call.sweep.partials] for call in calls]
        else:
            left: dict[int, Iterator[Any]] = {k: iter(arrays) for k, arrays in made.items()}
            results = [
                _of_rows(call, holding, self._servers, left)
                if call.sweep.leaves_rows
                else [_joined([next(left[k]) for k in holding]) for _ in call.sweep.partials]
                for call, holding in zip(calls, route.holders, strict=True)
            ]
        if program.frees:
            fan_out.note_frees(program.frees)
        self._counters.count_run(program, counts, time.perf_counter() - began)
        return results

    def _bytes_of(self, server: int, route: _Route, calls: Sequence[SweepCall]) -> int:
        """So many its calls take in a message."""
        sizes = [encode_call(call, full=False).ByteSize() + 2 for call in calls]
        if any(call.views for call in calls):
            links = self._fan_out.links
            peers, lives = [link.transport.address for link in links], [link.life for link in links]
            sizes.append(pb.Run(peers=peers, lives=lives).ByteSize())
        route.sent[server] = sum(sizes, self._header_bytes)
        return route.sent[server]

    def _add_collectives(self, body: pb.Run, program: Program, server: int) -> None:
        """The phases in which a server takes part."""
        for messages, collectives in ((body.before, program.before), (body.after, program.after)):
            for one in collectives:
                if server in one.servers(self._servers):
                    messages.append(encode_collective(one))

    def _message(
        self,
        server: int,
        calls: Sequence[tuple[SweepCall, pb.SweepCall]],
        new: list[tuple[int, str]],
        whole: dict[str, pb.Sweep],
    ) -> Message:
        """To one server. Sweeps that it has not seen go along whole, and are added to ``new``.

        They are encoded once for all servers, in ``whole``.
        """
        known = self._fan_out.links[server].known_sweeps
        request = self._requests.request()
        body = request.run.calls
        for call, encoded in calls:
            body.append(encoded)
            digest = call.sweep.digest
            if digest not in known:
                if digest not in whole:
                    whole[digest] = encode_sweep(call.sweep)
                    note_sweep(whole[digest], call.sweep)
                body[-1].sweep.CopyFrom(whole[digest])
                new.append((server, digest))

        complete = partial(_complete, [call.sweep for call, _ in calls])
        return Message(request, complete=complete)

    def _after(
        self, program: Program, new: Sequence[tuple[int, str]], ended: Ended | None
    ) -> After:
        """What to do when all servers have answered, or failed."""

        def after(replies: Replies, error: Exception | None) -> None:
            if ended is not None:
                ended(error)
            for server, digest in new:
                if server in replies:
                    self._fan_out.links[server].known_sweeps.add(digest)
            if error is not None:
                self._fan_out.take_back(program.made, replies)
                return
            if program.frees:
                self._fan_out.note_frees(program.frees)
            self._counters.count_program(program)
            for reply in replies.values():
                if reply.peer_messages:
                    self._counters.count_peers(reply.peer_messages, reply.peer_bytes)

        return after

    def _route(self, key: tuple[int, ...], calls: Sequence[SweepCall]) -> _Route:
        """Who takes part in ``calls``, whose sweeps and spaces have the ids of ``key``."""
        if len(self._routes) >= _MOST_REMEMBERED:
            self._routes.clear()
        holders = [call.space.holders(self._servers) for call in calls]
        shares: dict[int, list[int]] = {}
        for number, servers in enumerate(holders):
            for server in servers:
                shares.setdefault(server, []).append(number)
        digests = {server: {calls[k].sweep.digest for k in own} for server, own in shares.items()}
        pairs = [(call.sweep, call.space) for call in calls]
        found = self._routes[key] = _Route(pairs, holders, shares, digests, [0] * self._servers)
        return found


def _complete(sweeps: Sequence[Sweep], request: pb.Request) -> None:
    """Put the sweeps in full of a program."""
    for message, sweep in zip(request.run.calls, sweeps, strict=True):
        message.sweep.CopyFrom(encode_sweep(sweep))


def _assemble(
    program: Program, holders: Sequence[Sequence[int]], servers: int, replies: Replies
) -> list[list[np.ndarray]]:
    """Per call what comes of its partial results, those of its holders in order of the slots.

    Then per phase of a collective what the client keeps of it.
    """
    partials: dict[int, Iterator[Any]] = {
        server: iter(reply.partials) for server, reply in replies.items()
    }
    kept = [
        [
            np.frombuffer(next(partials[one.servers(servers)[0]]), type.dtype).reshape(type.shape)
            for _, type in one.results
            if one.is_last
        ]
        for one in program.before
    ]
    results = []
    for call, holding in zip(program.calls, holders, strict=True):
        if call.sweep.leaves_rows:
            results.append(_of_rows(call, holding, servers, partials))
            continue
        result = []
        for dtype in call.sweep.partials:
            parts = [next(partials[server]) for server in holding]
            result.append(np.frombuffer(b"".join(parts), dtype))
        results.append(result)
    return results + kept


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _of_rows(
    call: SweepCall,
    holding: Sequence[int],
    servers: int,
    partials: Mapping[int, Iterator[Any]],
) -> list[np.ndarray]:
    """From the partial results of each server, arrays or the bytes of these."""
    sweep, runs = call.sweep, []
    types = [value for r in sweep.reductions for value in partial_types(sweep, r)]
    for server in holding:
        low, high = call.space.range_of(server, servers)
        arrays = [
            np.frombuffer(next(partials[server]), value.dtype).reshape(-1, *value.row)
            for value in types
        ]
        runs.append(Run(low, high - low, arrays))
    return finished(call, concatenate(call, runs))
