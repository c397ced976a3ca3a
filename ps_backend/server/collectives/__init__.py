"""Collectives on a server: for each kind of ``program.collectives`` one function a phase.

``phase``  gives such a function its part of the arrays, its workspace, those of other servers, and
the blocks of its part, shared out to threads; ``run`` runs phases within programs. Each other
module has a table ``PHASES``: by kind, the functions of its phases.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ps_backend.program.collectives import TABLE
from ps_backend.server.collectives.phase import PhaseFunction

PHASES: dict[str, tuple[PhaseFunction, ...]] = {}
"""By kind, the functions of its phases."""


def register(kind: str, *phases: PhaseFunction) -> None:
    """Add the functions of a collective's phases; ``ValueError`` unless its row has as many."""
    row = TABLE[kind]
    if row.phases != len(phases):
        raise ValueError(f"{kind} has {row.phases} phases, got {len(phases)} functions")
    if PHASES.setdefault(kind, phases) is not phases:
        raise ValueError(f"there are phases of {kind!r} already")


for _module in iter_modules(__path__, f"{__name__}."):
    for _kind, _phases in getattr(import_module(_module.name), "PHASES", {}).items():
        register(_kind, *_phases)
