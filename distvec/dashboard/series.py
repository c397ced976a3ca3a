"""Numbers over time: rings of a bounded length, thinned before they are sent."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

KEPT = 3600
SENT = 600


class Series:
    """Rows of numbers with names, the first of which is the Unix time, oldest first."""

    def __init__(self, *names: str, kept: int = KEPT) -> None:
        self.names = ("t", *names)
        self._rows: deque[tuple[float | None, ...]] = deque(maxlen=kept)

    def add(self, time: float, *values: float | None) -> None:
        """Add a row; values that are not finite become gaps."""
        self._rows.append((time, *map(_finite, values)))

    def since(self, time: float, most: int = SENT) -> dict[str, list[float | None]]:
        """The columns by name of the rows after ``time``, at most so many of them."""
        rows = thinned(
            [row for row in list(self._rows) if row[0] is not None and row[0] > time], most
        )
        columns = zip(*rows, strict=True) if rows else ((),) * len(self.names)
        return {name: list(column) for name, column in zip(self.names, columns, strict=True)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def thinned(
    rows: Sequence[tuple[float | None, ...]], most: int
) -> Sequence[tuple[float | None, ...]]:
    """At most ``most`` of the rows: of each stretch those with the extremes of the second column.

    So a peak stays visible. The first and the last row stay.
    """
    if len(rows) <= most:
        return rows
    stretches = max(1, (most - 2) // 2)
    inner = rows[1:-1]
    found = [rows[0]]
    for k in range(stretches):
        part = inner[k * len(inner) // stretches : (k + 1) * len(inner) // stretches]
        places = range(len(part))
        low = min(places, key=lambda place: _order(part[place], math.inf))
        high = max(places, key=lambda place: _order(part[place], -math.inf))
        found += [part[place] for place in sorted({low, high})]
    return [*found, rows[-1]]


def _order(row: tuple[float | None, ...], missing: float) -> float:
    return missing if len(row) < 2 or row[1] is None else row[1]
