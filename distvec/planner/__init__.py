"""The planner: ``plan(nodes) = emit(schedule(fuse(simplify(nodes))))``.

Four passes, each a pure function of nodes whose result prints. Nothing here talks to a server.

=========  =============================================================================
simplify   rewrites without changing a bit of any result; inner products already known
fuse       which vectors are stored, and which stores and reductions share one traversal
schedule   traversals into programs: one program is one message per server
emit       programs in the form that servers run (``ps_backend.program``)
=========  =============================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distvec.expr import Graph, Node
from distvec.planner.emit import emit
from distvec.planner.fuse import fuse
from distvec.planner.plan import Plan
from distvec.planner.schedule import schedule
from distvec.planner.simplify import simplify

__all__ = ["Plan", "plan"]


def plan(
    graph: Graph, targets: Sequence[Node], *, keep: Iterable[Node] = (), pending: Sequence[Node] = ()
) -> Plan:
    """The programs that compute ``targets``.

    ``keep`` are nodes whose vectors are stored where they are computed on the way, since a user
    still holds them; ``pending`` are others that a user holds, computed as well where that costs no
    further read.
    """
    simplified = simplify(graph, [*targets, *pending])
    goals, extra = simplified[: len(targets)], simplified[len(targets) :]
    kept = {id(node) for node in simplify(graph, list(keep))}
    result = emit(schedule(fuse(graph, goals, extra, kept)))
    result.aliases = list(zip([*targets, *pending], simplified, strict=True))
    return result
