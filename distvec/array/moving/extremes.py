"""The least and the greatest element of an array, which are asked for once."""

from __future__ import annotations

from typing import Any

from distvec.array import reductions
from distvec.array.operators import Arithmetic


def extremes(x: Any, what: str) -> tuple[Any, Any]:
    """The least and the greatest element, which ``what`` needs: an implicit evaluation.

    Those of a stored array are known from then on.
    """
    session = x.session
    found: tuple[Any, Any] | None = session.extremes.get(x.node)
    if found is None:
        least, greatest = reductions.min(x), reductions.max(x)
        last = session.evaluate_implicitly(greatest, what)
        found = session.compute(least)[0].value, last
        if x.node.known:
            session.extremes[x.node] = found
    return found


def are_places(indices: Arithmetic, length: int) -> bool:
    """Whether integers on the servers are all places of an axis of that ``length``.

    One message, the first time that an array is asked.
    """
    session = indices.session
    if not indices.size:
        return True
    if indices.node not in session.extremes:
        least, greatest = session.compute(reductions.min(indices), reductions.max(indices))
        session.extremes[indices.node] = least.value, greatest.value
    least, greatest = session.extremes[indices.node]
    return bool(-length <= least and greatest < length)
