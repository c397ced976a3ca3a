"""Running results, ``np.cumsum`` and ``ufunc.accumulate``: scans.

Along axis 0 of what is on the servers they are movements of two phases: each server computes the
totals of its blocks, fetches those of the blocks before, 8 bytes for each block and column, and
writes the results. Two messages to each server, in which what is computed before and after goes
along. The bits do not depend on the number of servers.

Integers and ``maximum``, ``minimum``, ... are exact: NumPy's. Floats are added and multiplied in
float64 and rounded to their dtype at the end. NumPy adds ``n`` elements one after the other, so its
sums are off by up to ``n * eps * sum(|x|)``, to the first order; here it is the ``m`` elements of a
block, and then at most 1024 blocks: ``(m + 1024) * eps * sum(|x|)``. Sums of what is not negative
never fall. Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), section 4.2.

Along axis 1 of a table nothing moves; of small arrays the client computes them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.creation import filled, reshape
from distvec.array.moving.core import move
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reduction_keywords import accumulation_dtype, stored, target_of
from distvec.array.shaping.joining import concatenate
from distvec.array.signatures import as_arrays
from distvec.graph import build
from distvec.graph.build import check_dtype, on_client
from distvec.graph.node import Node
from ps_backend.program.scans import SCANS, Scan
from ps_backend.program.types import client_type

A = TypeVar("A", bound=Arithmetic)


def cumulative_sum(
    x: A, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
) -> A:
    """Running sums along ``axis``, which only vectors may leave out; lazy.

    ``include_initial``: with a 0 before them, which costs another message.
    """
    return _cumulative(x, "add", axis, dtype, include_initial)


def cumulative_prod(
    x: A, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
) -> A:
    """Running products along ``axis``, as ``cumulative_sum``; lazy."""
    return _cumulative(x, "multiply", axis, dtype, include_initial)


def cumsum(a: A, axis: Any = None, dtype: Any = None, out: Any = None) -> A:
    """Running sums along ``axis``, or of all elements row by row; lazy."""
    return _flat_or_along(a, "add", axis, dtype, out)


def cumprod(a: A, axis: Any = None, dtype: Any = None, out: Any = None) -> A:
    """Running products along ``axis``, or of all elements row by row; lazy."""
    return _flat_or_along(a, "multiply", axis, dtype, out)


def nancumsum(a: A, axis: Any = None, dtype: Any = None, out: Any = None) -> A:
    """Running sums of what is not NaN; lazy."""
    return cumsum(_without_nan(a, 0), axis, dtype, out)


def nancumprod(a: A, axis: Any = None, dtype: Any = None, out: Any = None) -> A:
    """Running products of what is not NaN; lazy."""
    return cumprod(_without_nan(a, 1), axis, dtype, out)


def accumulate(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    """``ufunc.accumulate``: running results along ``axis``; lazy.

    ``TypeError`` for a ufunc that is not in the table of scans.
    """
    scan = scan_of(ufunc, "accumulate")
    (array,) = as_arrays((x,))
    if array.ndim == 0:
        raise TypeError("cannot accumulate on a scalar")
    if axis is None and array.ndim > 1:
        raise ValueError("accumulate does not allow multiple axes")
    return _stored_running(array, scan, 0 if axis is None else axis, dtype, out)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours."""
    return {
        np.cumulative_sum: cumulative_sum,
        np.cumulative_prod: cumulative_prod,
        np.cumsum: cumsum,
        np.cumprod: cumprod,
        np.nancumsum: nancumsum,
        np.nancumprod: nancumprod,
    }


def _cumulative(x: A, name: str, axis: Any, dtype: Any, include_initial: bool) -> A:
    x = _at_least_a_vector(x)
    if axis is None and x.ndim > 1:
        raise ValueError(
            "For arrays which have more than one dimension ``axis`` argument is required."
        )
    axis = normalize_axis_index(0 if axis is None else operator.index(axis), x.ndim)
    found = _running(x, SCANS[name], axis, dtype)
    if not include_initial:
        return found
    extents = tuple(1 if k == axis else extent for k, extent in enumerate(found.shape))
    first = int(name == "multiply")
    start: Any = np.full(extents, first, found.dtype)
    if axis and not found.node.on_client:
        start = x.like(filled(x.session.graph, extents, first, found.dtype))
    joined: A = concatenate([start, found], axis=axis)
    return joined


def _flat_or_along(x: A, name: str, axis: Any, dtype: Any, out: Any) -> A:
    x = _at_least_a_vector(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    return _stored_running(x, SCANS[name], axis, dtype, out)


def _stored_running(x: A, scan: Scan, axis: Any, dtype: Any, out: Any) -> A:
    """Running results, in ``out=`` if that was given, whatever its dtype loses."""
    if out is None:
        return _running(x, scan, axis, dtype)
    kind = accumulation_dtype(target_of(out, scan.name), x) if dtype is None else dtype
    return stored(out, _running(x, scan, axis, kind), scan.name)


def _at_least_a_vector(x: A) -> A:
    (array,) = as_arrays((x,))
    return array if array.ndim else reshape(array, (1,))  # type: ignore[no-any-return]


def _without_nan(x: A, instead: int) -> A:
    (array,) = as_arrays((x,))
    if array.dtype.kind != "f":
        return array  # type: ignore[no-any-return]
    gone = elementwise(array, "isnan", array)
    return elementwise(array, "where", gone, float(instead), array)  # type: ignore[no-any-return]


def _running(x: A, scan: Scan, axis: Any, dtype: Any) -> A:
    """Running results of ``x``, of rank 1 or 2, in ``dtype`` or the one that NumPy's have."""
    over = normalize_axis_index(operator.index(axis), x.ndim)
    kind = dtype_of(scan, x.dtype, dtype)
    x = x.made()
    with x.session.holders.lock:
        graph, node = x.session.graph, cast_to(scan, x.node, kind, x)
        if node.on_client:
            type = client_type(kind, node.type.shape)
            given = scan.name, over, kind.name
            return x.like(on_client(graph, "client.accumulate", (node,), type, given))
        if over:
            wide = node.type.of(scan.result(node.dtype))
            return x.like(build.cast(graph, graph.make(scan.along_rows, (node,), wide), kind))
        source = x.like(node)
    found: A
    (found,) = move(scan.kind, [source], [], [node.type.of(kind)])
    return found


def scan_of(ufunc: np.ufunc, method: str) -> Scan:
    """The row of a ufunc in the table. ``TypeError``, of its ``method``, if there is none."""
    scan = SCANS.get(ufunc.__name__)
    if scan is None or scan.ufunc is not ufunc:
        raise TypeError(
            f"numpy.{ufunc.__name__}.{method} is not available on the servers; available are "
            f"{method} of {', '.join(sorted(SCANS))}; or pull the values with x.numpy()"
        )
    return scan


def cast_to(scan: Scan, node: Node, kind: np.dtype[Any], like: Arithmetic) -> Node:
    """What is to be joined in ``kind``: cast to it first, where that changes values."""
    if scan.truth or np.can_cast(node.dtype, kind, "safe"):
        return node
    return build.cast(like.session.graph, node, kind)


def dtype_of(scan: Scan, given: np.dtype[Any], wanted: Any) -> np.dtype[Any]:
    """The dtype of the results. ``TypeError`` where there are none in it."""
    try:
        kind = scan.result(given) if wanted is None else check_dtype(wanted)
        fits = scan.gives(kind)
    except TypeError:
        fits = False
    if not fits:
        raise TypeError(
            f"ufunc {scan.name!r} accumulates no values of {given}"
            + ("" if wanted is None else f" in {np.dtype(wanted)}")
        )
    return kind
