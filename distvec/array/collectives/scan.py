"""Running results, ``np.cumsum`` and ``ufunc.accumulate``: scans.

Along axis 0 of an array on the servers a scan has two phases. Each server computes the totals of
its blocks, fetches the totals of the blocks before, 8 bytes for each block and column, and writes
the results. That is two requests per server; they carry the computation before and after the
scan, too. Results are bitwise identical for any number of servers.

Integers and ``maximum``, ``minimum``, ... are exact, as in NumPy. Floats are added and multiplied
in float64 and rounded to their dtype at the end. NumPy adds ``n`` elements one by one, so its
sums are off by up to ``n * eps * sum(|x|)``, to the first order. Here it is the ``m`` elements of
a block, and then at most 1024 blocks: ``(m + 1024) * eps * sum(|x|)``. Sums of non-negative
elements never decrease. Source: Higham, Accuracy and Stability of Numerical Algorithms (2002),
section 4.2.

Along axis 1 of a table no data is transferred; the client computes scans of small arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.collectives.core import collective
from distvec.array.core.handle import check_session, host_array, is_split_by_columns, make
from distvec.array.core.keywords import (
    NOT_GIVEN,
    accumulation_dtype,
    check_out,
    is_everywhere,
    is_given,
    store,
    where_mask,
)
from distvec.array.core.operators import A, Arithmetic, as_array, as_operand, elementwise
from distvec.array.core.shapes import full, reshape
from distvec.array.indexing.getitem import get_item
from distvec.array.manipulation.join import concatenate
from distvec.array.reductions import axis_of
from distvec.array.transposed import supports_column_split
from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.host_eval import MOST_ELEMENTS
from distvec.graph.node import Graph, Node
from ps_backend.program import collectives, ops
from ps_backend.program.collectives import SCANS, Scan
from ps_backend.program.types import FLOATS, Row, array_type, client_type


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


@supports_column_split(unnamed=NotImplemented)
def cumsum(
    a: A, axis: int | None = None, dtype: npt.DTypeLike | None = None, out: A | None = None
) -> A:
    """Compute running sums.

    Parameters
    ----------
    a : DistArray
        Input array.
    axis : int, optional
        Axis to sum along. None (default) uses the flattened array.
    dtype : dtype, optional
        Dtype to cast the elements to first; the result has it, too.
    out : DistArray, optional
        Array of the result's shape that receives the result.

    Returns
    -------
    DistArray
        Lazy running sums.

    See Also
    --------
    numpy.cumsum : The same function of arrays on the client.

    Notes
    -----
    Along axis 0 the evaluation takes two requests per server. Results are bitwise identical for any
    number of servers. Floats are accumulated in float64.

    Examples
    --------
    >>> ps.array([1.0, 2.0, 3.0]).cumsum()
    DistArray([1., 3., 6.], dtype=float64, shape=(3,))
    """
    return _flat_or_along(a, "add", axis, dtype, out)


@supports_column_split(unnamed=NotImplemented)
def cumprod(
    a: A, axis: int | None = None, dtype: npt.DTypeLike | None = None, out: A | None = None
) -> A:
    """Compute running products.

    Parameters
    ----------
    a : DistArray
        Input array.
    axis : int, optional
        Axis to multiply along. None (default) uses the flattened array.
    dtype : dtype, optional
        Dtype to cast the elements to first; the result has it, too.
    out : DistArray, optional
        Array of the result's shape that receives the result.

    Returns
    -------
    DistArray
        Lazy running products.

    See Also
    --------
    numpy.cumprod : The same function of arrays on the client.

    Notes
    -----
    The same cost as ``cumsum``.

    Examples
    --------
    >>> ps.array([1.0, 2.0, 3.0]).cumprod()
    DistArray([1., 2., 6.], dtype=float64, shape=(3,))
    """
    return _flat_or_along(a, "multiply", axis, dtype, out)


def nancumsum(a: A, axis: Any = None, dtype: Any = None, out: Any = None) -> A:
    """Return running sums, with NaN counted as 0; lazy."""
    return cumsum(_without_nan(a, 0), axis, dtype, out)  # type: ignore[no-any-return]


def nancumprod(a: A, axis: Any = None, dtype: Any = None, out: Any = None) -> A:
    """Return running products, with NaN counted as 1; lazy."""
    return cumprod(_without_nan(a, 1), axis, dtype, out)  # type: ignore[no-any-return]


@supports_column_split(1)
def accumulate(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    """``ufunc.accumulate``: running results along ``axis``; lazy.

    ``TypeError`` for a ufunc that is not in the table of scans.
    """
    scan, array = scan_of(ufunc, "accumulate"), as_array("accumulate", x)
    if array.ndim == 0:
        raise TypeError("cannot accumulate on a scalar")
    if axis is None and array.ndim > 1:
        raise ValueError("accumulate does not allow multiple axes")
    return _stored_running(array, scan, 0 if axis is None else axis, dtype, out)


@supports_column_split(unnamed=NotImplemented)
def _cumulative(x: A, name: str, axis: Any, dtype: Any, include_initial: bool) -> A:
    x = _at_least_a_vector(x)
    if axis is None and x.ndim > 1:
        raise ValueError(
            "For arrays which have more than one dimension ``axis`` argument is required."
        )
    axis = normalize_axis_index(0 if axis is None else operator.index(axis), x.ndim)
    found = _scan(x, SCANS[name], axis, dtype)
    if not include_initial:
        return found
    extents = tuple(1 if k == axis else extent for k, extent in enumerate(found.shape))
    first = int(name == "multiply")
    start: Any = np.full(extents, first, found.dtype)
    if axis and not found.node.on_client:
        start = full(x, extents, first, found.dtype)
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
        return _scan(x, scan, axis, dtype)
    kind = accumulation_dtype(check_out(out, scan.name), x) if dtype is None else dtype
    return store(out, _scan(x, scan, axis, kind), scan.name, "unsafe")


def _at_least_a_vector(x: A) -> A:
    array = as_array("a running sum or product", x)
    return array if array.ndim else reshape(array, (1,))


def _without_nan(x: A, instead: int) -> A:
    array = as_array("a running sum or product", x)
    if array.dtype.kind != "f":
        return array
    gone = elementwise(array, "isnan", array)
    return elementwise(array, "where", gone, float(instead), array)


def _scan(x: A, scan: Scan, axis: Any, dtype: Any) -> A:
    """Running results of ``x``, of rank 1 or 2, in ``dtype`` or the one that NumPy's have."""
    over = normalize_axis_index(operator.index(axis), x.ndim)
    kind = dtype_of(scan, x.dtype, dtype)
    source = _cast_to(scan, x.materialized(), kind)
    type = source.node.type
    if source.node.on_client:
        params = scan.name, over, kind.name
        return make(x, "client.accumulate", (source,), client_type(kind, x.shape), params)
    if over:
        found = make(x, scan.along_rows, (source,), type.of(scan.result(source.dtype)))
        return found.astype(kind)
    (found,) = collective(scan.kind, [source], [], [type.of(kind)])
    return found


def scan_of(ufunc: np.ufunc, method: str) -> Scan:
    """Return the row of a ufunc in the table of scans. ``TypeError`` if it has no row."""
    scan = SCANS.get(ufunc.__name__)
    if scan is None or scan.ufunc is not ufunc:
        raise TypeError(
            f"numpy.{ufunc.__name__}.{method} is not available on the servers; available are "
            f"{method} of {', '.join(sorted(SCANS))}; or pull the values with x.numpy()"
        )
    return scan


def _cast_to(scan: Scan, x: A, kind: np.dtype[Any]) -> A:
    """Cast the operand to ``kind`` first if that changes values."""
    return x.copy() if scan.truth or np.can_cast(x.dtype, kind, "safe") else x.astype(kind)


def dtype_of(scan: Scan, given: np.dtype[Any], wanted: Any) -> np.dtype[Any]:
    """Return the dtype of the results. ``TypeError`` if the scan is not defined in it."""
    try:
        kind = scan.result(given) if wanted is None else check_dtype(wanted)
        fits = scan.gives(kind)
    except TypeError:
        fits = False
    if not fits:
        raise TypeError(
            f"ufunc {scan.name!r} cannot accumulate values of dtype {given}"
            + ("" if wanted is None else f" in {np.dtype(wanted)}")
        )
    return kind


def is_associative(ufunc: Any) -> bool:
    """Whether ``ufunc`` can be reduced so."""
    row = SCANS.get(ufunc.__name__)
    return row is not None and row.ufunc is ufunc


def reduce(
    ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False,
    initial: Any = NOT_GIVEN, where: Any = True,
) -> Any:  # fmt: skip
    """``ufunc.reduce(x, ...)``; lazy."""
    name = f"{ufunc.__name__}.reduce"
    array = as_array(name, x)
    over = axis_of(array, name, axis)
    if not is_everywhere(where):
        mask = where_mask(array, where, name)
        array = elementwise(array, "where", mask, array, array.dtype.type(ufunc.identity))
    if over == ():
        return array.copy()
    shape = array.shape
    if over is None:
        array, over = reshape(array, (array.size,)), 0
    found = _last(ufunc, array, int(over), dtype)  # type: ignore[arg-type]
    if is_given(initial):
        found = elementwise(found, ops.NAMES[ufunc], found, found.dtype.type(initial))
    if not keepdims:
        return found
    gone = range(len(shape)) if axis is None or len(shape) == 1 else (over,)
    return reshape(found, tuple(1 if k in gone else n for k, n in enumerate(shape)))


def _last(ufunc: np.ufunc, x: Any, axis: int, dtype: Any) -> Any:
    if not x.shape[axis]:
        rest = x.shape[:axis] + x.shape[axis + 1 :]
        empty = ufunc.reduce(np.empty(0, x.dtype), dtype=dtype)
        return full(x, rest, empty, empty.dtype)
    running = accumulate(ufunc, x, axis, dtype)
    return get_item(running, (slice(None),) * axis + (-1,))


def reduceat(
    ufunc: np.ufunc, x: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None
) -> Any:
    """Reduce ``x[i:j]`` for each index and the next one, as ``ufunc.reduceat``; lazy.

    If the next index is not greater, the result is the element at the index. The last slice goes to
    the end. ``indices`` are on the client. ``IndexError`` for an index out of range, ``TypeError``
    for a ufunc that is not in the table of scans, ``NotImplementedError`` along axis 1 of a table.
    """
    scan, array = scan_of(ufunc, "reduceat"), as_array("reduceat", x)
    if out is not None:
        kind = accumulation_dtype(check_out(out, "reduceat"), array) if dtype is None else dtype
        return store(out, reduceat(ufunc, array, indices, axis, kind), scan.name, "unsafe")
    if array.ndim == 0:
        raise TypeError("cannot reduceat on a scalar")
    array = array.materialized()
    over = normalize_axis_index(operator.index(axis), array.ndim)
    starts = _check_indices(ufunc, indices, array.shape[over])
    kind = dtype_of(scan, array.dtype, dtype)
    shape = tuple(len(starts) if k == over else one for k, one in enumerate(array.shape))
    source = _cast_to(scan, array, kind)
    if source.node.on_client:
        params = scan.name, tuple(starts.tolist()), over, kind.name
        return make(array, "client.reduceat", (source,), client_type(kind, shape), params)
    if over:
        raise NotImplementedError(
            f"numpy.{scan.name}.reduceat along axis 1 of a table is not available on the servers; "
            f"reduce some columns, as in numpy.{scan.name}.reduce(x[:, i:j], axis=1)"
        )
    if prod(shape) > MOST_ELEMENTS:
        raise NotImplementedError(
            f"reduceat: {len(starts)} indices give more than {MOST_ELEMENTS} elements on the "
            "client; give fewer indices in one call"
        )
    if not len(starts):
        return host_array(array, np.empty(shape, kind))
    (found,) = collective(scan.between, [source], [starts], [client_type(kind, shape)])
    return found


def _check_indices(ufunc: np.ufunc, indices: Any, length: int) -> npt.NDArray[np.int64]:
    if isinstance(indices, Arithmetic):
        raise TypeError(
            f"numpy.{ufunc.__name__}.reduceat: indices must be on the client; pull them: "
            "indices.numpy()"
        )
    found = np.asarray(indices).astype(np.int64)
    if found.ndim != 1:
        raise ValueError(f"reduceat: indices must be a vector, got shape {found.shape}")
    for index in found[(found < 0) | (found >= length)][:1]:
        raise IndexError(f"index {index} out-of-bounds in {ufunc.__name__}.reduceat [0, {length})")
    return found


_FLOAT = np.dtype(np.float64)


def linear_recurrence(
    a: Arithmetic | npt.ArrayLike,
    b: Arithmetic | npt.ArrayLike,
    initial: Arithmetic | npt.ArrayLike = 0.0,
) -> Any:
    """Solve the linear recurrence ``y[t] = a[t] * y[t - 1] + b[t]`` along axis 0.

    Parameters
    ----------
    a : DistArray or array_like
        Factors: a vector or a table, a number, or one row for all ``t`` of a table.
    b : DistArray or array_like
        Terms, broadcast against ``a``.
    initial : DistArray or array_like, default 0.0
        Value of ``y[-1]``: a number, or one for each column.

    Returns
    -------
    DistArray or numpy.ndarray
        Lazy array of the broadcast shape, in the dtype of the floats among the operands, otherwise
        float64. Without a DistArray among the operands it is a NumPy array.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an operand is split by columns, or a long array on the client stands beside arrays on the
        servers.

    Notes
    -----
    It computes in float64. Two requests per server; servers exchange 8 to 24 bytes for each block
    border and column. Results are bitwise identical for any number of servers, and up to 1024 rows
    to the plain loop.

    Examples
    --------
    >>> dv.linear_recurrence(0.5, ps.array([8.0, 4.0, 2.0]))
    DistArray([8., 8., 6.], dtype=float64, shape=(3,))
    """
    given = (a, b, initial)
    if any(is_split_by_columns(one) for one in given):
        raise TypeError(
            "linear_recurrence: a table split by columns is not supported; copy it split by rows: "
            "session.array(x.numpy())"
        )
    like = next((one for one in given if isinstance(one, Arithmetic)), None)
    if like is None:
        return _of_numpy(*given)
    for one in given:
        if isinstance(one, Arithmetic):
            check_session(like.session, one, "linear_recurrence")
    made = [one.materialized() if isinstance(one, Arithmetic) else one for one in given]
    dtype = _dtype_of(made)
    _check(*map(np.shape, made))
    like = max((one for one in made if isinstance(one, Arithmetic)), key=lambda one: one.ndim)
    graph = like.session.graph
    with like.session.holders.lock:
        factor, term, start = (as_operand(like, one, "linear_recurrence").node for one in made)
        space, shape = build.common_shape([factor, term])
        if space is None:
            type = client_type(_FLOAT, shape)
            args = factor, term, build.collect(graph, start)
            found = build.on_client(graph, "client.recurrence", args, type)
            return like.like(build.cast(graph, found, dtype))
        made_type = array_type(space, dtype if dtype.name in FLOATS else _FLOAT, shape[1:])
        factor, term = (_as_float(graph, one) for one in (factor, term))
        term = build.broadcast_to(graph, term, made_type.of(term.dtype))
        factor = build.fit(graph, factor, space, shape)
        start = build.cast(graph, build.collect(graph, start), _FLOAT)
        inputs, operands = [like.like(term)], [like.like(start)]
        (operands if factor.on_client else inputs).append(like.like(factor))
    (result,) = collective(collectives.LINEAR_RECURRENCE, inputs, operands, [made_type])
    return result if result.dtype == dtype else result.astype(dtype)


def _as_float(graph: Graph, node: Node) -> Node:
    return node if node.dtype.name in FLOATS else build.cast(graph, node, _FLOAT)


def _of_numpy(a: Any, b: Any, initial: Any) -> np.ndarray:
    dtype = _dtype_of((a, b, initial))
    given = [np.asarray(one, np.float64) for one in (a, b, initial)]
    _check(*map(np.shape, given))
    return collectives.linear_recurrence(*given).astype(dtype)


def _dtype_of(given: Sequence[Any]) -> np.dtype[Any]:
    """Return the common dtype of the floats, or float64 without floats."""
    kinds = [one.dtype if hasattr(one, "dtype") else one for one in given]
    arrays = [np.asarray(one).dtype if isinstance(one, list | tuple) else one for one in kinds]
    found = np.result_type(*arrays)
    return found if found.kind == "f" else _FLOAT


def _check(a: Row, b: Row, initial: Row) -> None:
    """``ValueError`` unless the shapes fit."""
    shape = np.broadcast_shapes(a, b)
    if not shape:
        raise ValueError("linear_recurrence: a or b must be a vector or a table, got two numbers")
    if initial not in ((), (1,), shape[1:]):
        raise ValueError(
            f"linear_recurrence: initial must be a number, or have shape {shape[1:]}: one value "
            f"for each column; got shape {initial}"
        )
