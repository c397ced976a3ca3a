"""Spaces: index sets, and how they are split over servers.

Each kind is one class, in a file of its own, and one row of ``KINDS``: everything else reads that
table. Length, id and details of a space are all that travels; from them client and servers compute
the split independently.
"""

from __future__ import annotations

from functools import lru_cache

from ps_backend.errors import InvalidProgram
from ps_backend.program.spaces.dense import DenseSpace
from ps_backend.program.spaces.ragged import RaggedSpace
from ps_backend.program.spaces.space import Space

__all__ = ["KINDS", "DenseSpace", "RaggedSpace", "Space", "decode_space"]

KINDS: dict[str, type[Space]] = {one.kind: one for one in (DenseSpace, RaggedSpace)}
"""The kinds of spaces: the only place that lists them."""


@lru_cache(maxsize=4096, typed=True)  # 5.0 equals 5, and is no length
def decode_space(kind: str, length: int, id: int, details: bytes) -> Space:
    """The space of which these travelled: mostly the same object for the same ones.

    ``InvalidProgram`` for an unknown kind, ``ValueError`` where the class refuses the rest.
    """
    if kind not in KINDS:
        raise InvalidProgram(
            f"no space of kind {kind!r} is known here, but {', '.join(KINDS)}: its class must be "
            f"in ps_backend.program.spaces.KINDS of this process too"
        )
    return KINDS[kind].decode(length, id, details)
