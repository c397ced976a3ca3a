"""Places of values in sorted arrays, and functions that use them: ``searchsorted``, ``interp``.

If the sorted array is small and on the client, the search is elementwise. If it is on the
servers, each value goes to the server that has its neighbours, and its place comes back.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from distvec.array.collectives.core import as_vector, collective, common_session
from distvec.array.core.handle import check_session, make
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import reshape
from distvec.array.elementwise import apply, where
from distvec.array.indexing.getitem import get_item
from distvec.array.reductions import any as any_of
from distvec.array.reductions import argmax
from distvec.graph.build import check_dtype
from distvec.graph.host_eval import MOST_ELEMENTS
from ps_backend.program.collectives import SEARCH
from ps_backend.program.types import array_type


def searchsorted(
    a: Arithmetic | npt.ArrayLike,
    v: Arithmetic | npt.ArrayLike,
    side: Literal["left", "right"] = "left",
    sorter: Arithmetic | npt.ArrayLike | None = None,
) -> Any:
    """Find the indices at which values would be inserted into a sorted vector.

    Parameters
    ----------
    a : DistArray or array_like
        Sorted vector.
    v : DistArray or array_like
        Values to look up. At least one of ``a`` and ``v`` is a DistArray.
    side : {"left", "right"}, default "left"
        Whether equal elements come after ("left") or before ("right") the inserted value.
    sorter : DistArray or array_like of int, optional
        Indices that sort ``a``, if it is not sorted.

    Returns
    -------
    DistArray
        Lazy int64 array of the shape of ``v``.

    Raises
    ------
    ValueError
        If ``a`` is not a vector, or ``side`` is unknown.

    See Also
    --------
    numpy.searchsorted : The same function of arrays on the client.

    Notes
    -----
    If ``a`` is on the client, this is an elementwise operation. If it is on the servers, it takes
    four requests per server.

    Examples
    --------
    >>> ps.array([1.0, 2.0, 3.0]).searchsorted([1.5, 3.0])
    DistArray([1, 2], dtype=int64, shape=(2,))
    """
    session = common_session(a, v, "searchsorted")
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    if np.ndim(a) != 1:  # type: ignore[arg-type]
        raise ValueError("object of too small depth for desired array")
    if sorter is not None:
        a = _apply_sorter(session, a, sorter)
    values = v if isinstance(v, Arithmetic) else np.asarray(v)
    table = a if isinstance(a, Arithmetic) else np.asarray(a)
    kind = check_dtype(np.result_type(table.dtype, values.dtype))
    found = values.materialized() if isinstance(values, Arithmetic) else session._put(values)
    if isinstance(table, Arithmetic) and not table.node.on_client:
        return _found_on_servers(table.materialized().astype(kind), found.astype(kind), side)
    return rank_in_table(found.astype(kind), read_table(table).astype(kind), side)


def read_table(a: Any) -> npt.NDArray[Any]:
    """Return the values on the client; ``NotImplementedError`` if they are too many to send."""
    if isinstance(a, Arithmetic):
        return np.asarray(a.session.evaluate_implicitly(a, "a table to look up in"))
    found = np.asarray(a)
    if found.size > MOST_ELEMENTS:
        raise NotImplementedError(
            f"an array of {found.size} elements is too large to send with the program (at most "
            f"{MOST_ELEMENTS}); put it on the servers: session.array(...)"
        )
    return found


def _apply_sorter(session: Any, a: Any, sorter: Any) -> Any:
    if len(sorter) != len(a):
        raise ValueError("sorter.size must equal a.size")
    if isinstance(a, Arithmetic) or isinstance(sorter, Arithmetic):
        given = a if isinstance(a, Arithmetic) else session._put(a)
        return get_item(given, sorter)
    return np.asarray(a)[np.asarray(sorter)]


def rank_in_table(x: Any, table: npt.NDArray[Any], side: str) -> Any:
    """Return the rank of each element of ``x`` in a sorted array that is sent with the program."""
    return look_up(x, "rank", np.dtype(np.int64), [table], [int(side == "right")])


def look_up(
    x: Any, op: str, dtype: np.dtype[Any], tables: list[npt.NDArray[Any]], params: Any = ()
) -> Any:
    """Apply the row op ``op`` to the elements of ``x`` and the arrays that are sent along."""
    if x.ndim == 0:
        return reshape(look_up(reshape(x, (1,)), op, dtype, tables, params), ())
    if x.node.on_client:
        x = x.session._put(x)
    return make(x, op, (x, *tables), x.type.of(dtype), tuple(params))


def _found_on_servers(table: Any, values: Any, side: str) -> Any:
    """Places in an array on the servers."""
    check_session(table.session, values, "searchsorted")
    flat = as_vector(table.session, values)
    type = array_type(flat.space, np.int64)
    (found,) = collective(SEARCH, [table, flat], (), [type], [int(side == "right")])
    return found if values.ndim == 1 else reshape(found, values.shape)


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """The number of the bin that each element of ``x`` is in: ``numpy.digitize``; lazy.

    ``bins`` ascends or descends: for that those on the servers are looked at, an implicit
    evaluation.
    """
    common_session(x, bins, "digitize")
    direction = _direction(bins)
    if direction == 0:
        raise ValueError("bins must be monotonically increasing or decreasing")
    side: Literal["left", "right"] = "left" if right else "right"
    if direction < 0:
        ours = isinstance(bins, Arithmetic)
        backwards = get_item(bins, slice(None, None, -1)) if ours else np.asarray(bins)[::-1]
        return len(backwards) - searchsorted(backwards, x, side)
    return searchsorted(bins, x, side)


def _direction(bins: Any) -> Any:
    """1 of what ascends, -1 of what descends, 0 of others. As NumPy, where NaN is not ordered:
    the first two values that differ say in which direction, and none is against it.
    """
    if np.ndim(bins) != 1:
        raise ValueError("object of too small depth for desired array")
    if isinstance(bins, Arithmetic) and not bins.node.on_client:
        if len(bins) < 2:
            return 1
        later, earlier = get_item(bins, slice(1, None)), get_item(bins, slice(None, -1))
        falls, rises = apply("less", later, earlier), apply("greater", later, earlier)
        unordered = apply("not_equal", later, earlier) & ~(falls | rises)
        found = [any_of(one) for one in (falls, rises, unordered)]
        bins.session.evaluate_implicitly(found[0], "digitize()")
        falls_first = bool(found[0])
        if found[2]:
            falls_first = not rises[argmax(apply("not_equal", later, earlier))]
        return -int(not found[1]) if falls_first else int(not found[0])
    edges = read_table(bins)
    later, earlier = edges[1:], edges[:-1]
    differ = later != earlier
    if differ.any() and not (later > earlier)[np.argmax(differ)]:
        return -int(not np.any(later > earlier))
    return int(not np.any(later < earlier))


_FLOAT = np.dtype(np.float64)


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Interpolate between the points ``(xp, fp)``, ``xp`` ascending, at ``x``; float64, lazy.

    Elementwise if the points are on the client. If they are on the servers, each value finds its
    neighbours by a search and fetches them with four gathers. Source: ``numpy.interp``.
    """
    session = common_session(x, xp if isinstance(xp, Arithmetic) else fp, "interp")
    values = x.materialized() if isinstance(x, Arithmetic) else session._put(x)
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
                "interp: period= needs points on the client; pull them: xp.numpy(), fp.numpy()"
            )
        xp, fp = _of_a_period(read_table(xp), read_table(fp), abs(period))
        values, left, right = values % abs(period), None, None
    if is_long:
        return _on_servers(values, xp, fp, left, right)
    points, heights = read_table(xp).astype(_FLOAT), read_table(fp).astype(_FLOAT)
    ends = np.array([heights[0] if left is None else left, heights[-1] if right is None else right])
    line = np.stack((points, heights))
    return look_up(values, "interpolated", _FLOAT, [line, ends.astype(_FLOAT)])


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
    other = slope * (flat - x1) + y1  # as NumPy, if an infinite end makes NaN
    other = where(apply("isnan", other) & (y0 == y1), y0, other)
    result = where(apply("isnan", result), other, result)
    result = where((flat == x0) | (lower == last), y0, result)
    result = where(before == 0, get_item(heights, 0) if left is None else left, result)
    beyond = get_item(heights, last) if right is None else right
    result = where(flat > get_item(points, last), beyond, result)
    if last:  # one point is all that NaN can be next to
        result = where(apply("isnan", flat), flat, result)
    return result if x.ndim == 1 else reshape(result, x.shape)
