"""What a row function returns: which rows change and how, and what comes back per key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """New rows, and how they are joined to those that are there."""

    op: str
    rows: Any


def replace(rows: Any) -> Update:
    """Write ``rows``: what a row function returns without saying more."""
    return Update("replace", rows)


def add(rows: Any) -> Update:
    """Add ``rows`` to what is there, which the function need not have read."""
    return Update("add", rows)


def min(rows: Any) -> Update:
    """Keep the lesser one of ``rows`` and of what is there, element by element."""
    return Update("min", rows)


def max(rows: Any) -> Update:
    """Keep the greater one of ``rows`` and of what is there, element by element."""
    return Update("max", rows)


@dataclass(frozen=True, slots=True, eq=False)
class Returned:
    """What a function returned, sorted out."""

    updates: Mapping[str, Update]
    values: tuple[Any, ...]
    several: bool
    """Whether the values are to come back as a tuple."""


def sorted_out(returned: Any, function: str) -> Returned:
    """A dict of updates by the names of arguments; values per key; or a pair of both.

    ``TypeError`` for anything else.
    """
    updates: Mapping[str, Any] = {}
    values = returned
    if isinstance(returned, Mapping):
        updates, values = returned, None
    elif isinstance(returned, tuple) and returned and isinstance(returned[0], Mapping):
        if len(returned) != 2:
            raise TypeError(
                f"{function}: beside the updates it returns one value, or a tuple of values: "
                f"return updates, (a, b)"
            )
        updates, values = returned
    several = isinstance(values, tuple | list)
    found = tuple(values) if several else () if values is None else (values,)
    if not updates and not found:
        raise TypeError(
            f"{function} returns nothing, so it neither changes anything nor tells anything; "
            f"return {{'w': new_rows}} to write the rows of the argument w, or a value per key"
        )
    given = {
        name: one if isinstance(one, Update) else replace(one) for name, one in updates.items()
    }
    return Returned(given, found, several)
