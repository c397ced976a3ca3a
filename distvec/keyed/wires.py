"""How rows travel, as callers say it."""

from __future__ import annotations

from ps_backend.client import WIRES
from ps_backend.program.types import Row

OFF = "off"
"""Rows travel as they are."""


def chosen_wire(kind: str | None, row: Row | None = None) -> str:
    """One of ``WIRES``, or empty for as they are: ``None`` and ``"off"``.

    ``row``: the shape of a row, where all of them have one. ``ValueError`` for what there is not.
    """
    if kind is None or kind == OFF:
        return ""
    if kind not in WIRES:
        names = ", ".join(WIRES)
        raise ValueError(f"wire must be one of {names}, or {OFF}, got {kind!r}")
    if kind == "int8" and row == ():
        raise ValueError("wire='int8' has a scale for each row, so it is of tables only")
    return kind
