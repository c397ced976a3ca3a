"""Someone adds a collective: a row, a function for each of its phases, and nothing else."""

from __future__ import annotations

import numpy as np

from distvec.array.collectives.core import collective
from distvec.session import Session
from ps_backend.program import collectives
from ps_backend.program.collectives import Collective, CollectiveTypes, Params
from ps_backend.program.types import client_type
from ps_backend.server import collectives as on_servers
from ps_backend.server.collectives.phase import Phase, RemoteRows
from tests.architecture.apart import used


def check(types: CollectiveTypes, params: Params) -> None:
    if len(types.inputs) != 1:
        raise TypeError("one array can be reversed at a time")


def leave(phase: Phase) -> None:
    """Each server leaves its elements where the others find them."""
    phase.workspace.put("elements", phase.inputs[0])


def reverse(phase: Phase) -> None:
    """Each server takes those that belong to its slots, from whoever has them."""
    space = phase.call.types.inputs[0].space
    low, high = phase.range_of(space)
    first, last = space.length - high, space.length - low
    taken = phase.scratch(high - low, phase.inputs[0].dtype)
    pieces = []
    for server in phase.servers:
        begin, end = phase.range_of(space, server)
        start, stop = max(first, begin), min(last, end)
        if start < stop:
            into = taken[start - first : stop - first]
            pieces.append(RemoteRows(server, "elements", start - begin, stop - start, into))
    phase.fetch(pieces)
    if 0 in phase.wanted:
        phase.outputs[0][:] = taken[::-1]
    phase.results[1] = np.array([space.length])


def register() -> None:
    collectives.register(Collective("reverse", 2, check))
    on_servers.register("reverse", leave, reverse)


def use(ps: Session) -> None:
    x = ps.arange(5000.0)
    twice = 2 * x
    types = twice.node.type, client_type(np.dtype(np.int64), (1,))
    backwards, length = collective("reverse", [twice], [], types)
    ps.counters.reset()
    assert float((backwards * x).sum()) == float(np.arange(5000.0) @ (2 * np.arange(5000.0)[::-1]))
    assert ps.counters.messages == ps.counters.phases == 2  # the work around them comes along
    assert length.numpy().tolist() == [5000]
    assert ps.counters.messages == 2  # as somebody held it when the collective ran
    assert backwards.numpy().tolist() == (2 * np.arange(5000.0))[::-1].tolist()


def test_it_is_one_of_programs_on_two_servers():
    used("test_a_new_collective")
