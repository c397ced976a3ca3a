"""Movements on a server: for each kind of ``ps_backend.program.collectives`` one function a phase.

``phase``  what such a function works with: its part of the arrays, its workspace, the others'
``run``    phases within programs
``blocks`` the blocks of a server's part, shared out to threads
``pairs``  indices, and what goes with them, on their way to who holds what they name
``runs``   sorted runs of all servers, and where to cut them

The other modules are those of ``SUBJECTS``: each has a function ``phases``, which says by kind the
functions that it has.
"""

from __future__ import annotations

from ps_backend.program import collectives as movements
from ps_backend.server.collectives import counts, scans, scatters, searches, sorting, tsqr
from ps_backend.server.collectives import scans as segments
from ps_backend.server.collectives import sorting as order_statistics
from ps_backend.server.collectives.phase import PhaseFunction

SUBJECTS = (
    counts,
    order_statistics,
    scans,
    scatters,
    searches,
    segments,
    sorting,
    tsqr,
)

PHASES: dict[str, tuple[PhaseFunction, ...]] = {}
"""By kind, the functions of its phases."""


def register(kind: str, *phases: PhaseFunction) -> None:
    """Add what runs the phases of a movement; ``ValueError`` unless its row has as many."""
    row = movements.TABLE[kind]
    if row.phases != len(phases):
        raise ValueError(f"{kind} has {row.phases} phases, got {len(phases)} functions")
    if PHASES.setdefault(kind, phases) is not phases:
        raise ValueError(f"there are phases of {kind!r} already")


for _subject in SUBJECTS:
    for _kind, _phases in _subject.phases().items():
        register(_kind, *_phases)
