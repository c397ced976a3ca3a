"""The client's side of running programs: who gets which calls, and how the answers fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from ps_backend.client.counters import Counters
from ps_backend.client.fan_out import After, FanOut, Replies
from ps_backend.client.requests import Requests
from ps_backend.client.server_link import Message
from ps_backend.program.partials import Run, concatenate, finished, partial_types
from ps_backend.program.spaces import Space
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_call, encode_collective, encode_sweep, note_sweep

_MOST_REMEMBERED = 4096

Ended = Callable[[Exception | None], None]
"""Gets the error of a request whose replies have come, None if all is well."""


@dataclass(frozen=True, slots=True)
class _Route:
    """Who takes part in calls over some spaces. Of each call:"""

    holders: Sequence[Sequence[int]]
    """its servers, in order of the slots,"""
    shares: Mapping[int, Sequence[int]]
    """and of each server its calls, by their numbers."""


class Dispatcher:
    """Runs programs over the links of one client."""

    def __init__(self, requests: Requests, fan_out: FanOut, counters: Counters) -> None:
        self._requests, self._fan_out, self._counters = requests, fan_out, counters
        self._servers = requests.servers
        self._routes: dict[tuple[Space, ...], _Route] = {}

    def run(
        self, program: Program, *, wait: bool, ended: Ended | None
    ) -> list[list[np.ndarray]] | None:
        """As ``Client.run``."""
        calls = program.calls
        route = self._route(tuple([call.space for call in calls]))
        servers: Set[int] = route.shares.keys()
        if program.before or program.after:
            collectives = (*program.before, *program.after)
            servers = servers | {k for one in collectives for k in one.servers(self._servers)}
        if not servers:
            self._fan_out.note_frees(program.frees)
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
            self._fan_out.await_all()  # what servers fetch from one another is there, and stays
            addresses = [link.transport.address for link in self._fan_out.links]
            lives = [link.life for link in self._fan_out.links]  # of where they are now, or later
            for server, message in messages.items():
                message.request.run.peers.extend(addresses)
                message.request.run.lives.extend(lives)
                self._add_collectives(message.request.run, program, server)
        if not wait:
            self._fan_out.send_unawaited(messages, after=after, quiet=ended is not None)
            if viewing:
                self._fan_out.await_all()
            return None
        replies = self._fan_out.send(messages, after=after)
        return _assemble(program, route.holders, self._servers, replies)

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

        def complete(request: pb.Request) -> None:
            for message, (call, _) in zip(request.run.calls, calls, strict=True):
                message.sweep.CopyFrom(encode_sweep(call.sweep))

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

    def _route(self, spaces: tuple[Space, ...]) -> _Route:
        """Who takes part in calls over ``spaces``."""
        found = self._routes.get(spaces)
        if found is None:
            if len(self._routes) >= _MOST_REMEMBERED:
                self._routes.clear()
            holders = [space.holders(self._servers) for space in spaces]
            shares: dict[int, list[int]] = {}
            for number, servers in enumerate(holders):
                for server in servers:
                    shares.setdefault(server, []).append(number)
            found = self._routes[spaces] = _Route(holders, shares)
        return found


def _assemble(
    program: Program, holders: Sequence[Sequence[int]], servers: int, replies: Replies
) -> list[list[np.ndarray]]:
    """Per call what comes of its partial results, those of its holders in order of the slots.

    Then per phase of a collective what the client keeps of it.
    """
    partials = {server: iter(reply.partials) for server, reply in replies.items()}
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


def _of_rows(
    call: SweepCall,
    holding: Sequence[int],
    servers: int,
    partials: Mapping[int, Iterator[bytes]],
) -> list[np.ndarray]:
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
