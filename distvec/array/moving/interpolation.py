"""Values between the points of a line: ``interp``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.array.functions import apply, where
from distvec.array.items import get_item
from distvec.array.moving.counting import as_vector, session_of
from distvec.array.moving.search import looked_up, searchsorted, small
from distvec.array.operators import Arithmetic

_FLOAT = np.dtype(np.float64)


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """The line through the points ``(xp, fp)``, ``xp`` ascending, at ``x``; float64, lazy.

    Elementwise if the client has the points. On the servers each value finds its neighbours by a
    search, and takes them from where they are: by four gathers. Source: ``numpy.interp``.
    """
    session = session_of(x, xp if isinstance(xp, Arithmetic) else fp, "interp")
    values = x.made() if isinstance(x, Arithmetic) else session.array(x)
    if np.ndim(xp) != 1 or np.ndim(fp) != 1:
        raise ValueError("Data points must be 1-D sequences")
    if np.size(xp) != np.size(fp):
        raise ValueError("fp and xp are not of the same length.")
    if not np.size(xp):
        raise ValueError("array of sample points is empty")
    values = values.astype(_FLOAT)
    is_long = any(isinstance(one, Arithmetic) and not one.node.on_client for one in (xp, fp))
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        if is_long:
            raise NotImplementedError(
                "interp: period= with points on the servers; repeat the points of one period"
            )
        xp, fp = _of_a_period(small(xp), small(fp), abs(period))
        values, left, right = values % abs(period), None, None
    if is_long:
        return _on_servers(values, xp, fp, left, right)
    points, heights = small(xp).astype(_FLOAT), small(fp).astype(_FLOAT)
    ends = np.array([heights[0] if left is None else left, heights[-1] if right is None else right])
    line = np.stack((points, heights))
    return looked_up(values, "interpolated", _FLOAT, [line, ends.astype(_FLOAT)])


def _of_a_period(xp: Any, fp: Any, period: Any) -> tuple[Any, Any]:
    """The points of one period in order, and one more at both ends."""
    places = np.asarray(xp, _FLOAT) % period
    order = np.argsort(places)
    places, heights = places[order], np.asarray(fp, _FLOAT)[order]
    places = np.concatenate((places[-1:] - period, places, places[:1] + period))
    return places, np.concatenate((heights[-1:], heights, heights[:1]))


def _on_servers(x: Any, xp: Any, fp: Any, left: Any, right: Any) -> Any:
    points, heights = (as_vector(x.session, one).astype(_FLOAT) for one in (xp, fp))
    flat, last = as_vector(x.session, x), len(points) - 1
    before = searchsorted(points, flat, "right")
    lower = apply("maximum", before - 1, 0)
    upper = apply("minimum", lower + 1, last)
    x0, x1, y0, y1 = (get_item(a, i) for a in (points, heights) for i in (lower, upper))
    slope = (y1 - y0) / (x1 - x0)
    result = slope * (flat - x0) + y0
    other = slope * (flat - x1) + y1  # NumPy's way out where an infinite end makes NaN
    other = where(apply("isnan", other) & (y0 == y1), y0, other)
    result = where(apply("isnan", result), other, result)
    result = where((flat == x0) | (lower == last), y0, result)
    result = where(before == 0, get_item(heights, 0) if left is None else left, result)
    beyond = get_item(heights, last) if right is None else right
    result = where(flat > get_item(points, last), beyond, result)
    if last:  # one point is all that NaN can be next to
        result = where(apply("isnan", flat), flat, result)
    return result if x.ndim == 1 else reshape(result, x.shape)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.interp: interp}
