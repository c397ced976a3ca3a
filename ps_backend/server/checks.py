"""Whether what every request has keeps within the bounds of ``limits``, and bounds in common.

They are asked before anything is done. The bounds of one command stand beside it; what a bound
depends on, such as the arrays that are there, the command checks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.wire import ps_pb2 as pb

_MOST_KEY_BYTES = 64


def verify_sender(request: pb.Request) -> None:
    """Raise ``ValueError`` unless the sender's names and key are within bounds."""
    check_name("session", request.session)
    check_name("client", request.client)
    check("bytes of a key", len(request.key), 0, _MOST_KEY_BYTES)


def verify_row(row: Iterable[int], most: int = limits.MOST_ROW_EXTENTS) -> None:
    """The same for the shape of a row, of ``most`` extents."""
    extents = tuple(row)
    if extents:
        check("extents of a row", len(extents), 0, most)
        check("elements of a row", prod(extents), 0, limits.MOST_ROW_ITEMS)


def verify_space(space: pb.Space) -> None:
    """The same for a space."""
    check("length of a space", space.length, 0, limits.MOST_LENGTH)
    check_name("kind of a space", space.kind)
    check("bytes of details of a space", len(space.details), 0, limits.MOST_DETAILS)


def verify_array(array: pb.Array) -> None:
    """The same for an array."""
    verify_space(array.space)
    verify_row(array.row)


def no_bounds(body: Any) -> None:
    """For a message that has nothing to bound."""


def array_within_bounds(body: Any) -> None:
    """For a message with an ``array``."""
    verify_array(body.array)


def name_within_bounds(field: str) -> Callable[[Any], None]:
    """For a message with a name in ``field``."""
    return lambda body: check_name(field, getattr(body, field))
