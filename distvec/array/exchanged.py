"""What stands beside a table where something stands beside its transpose; and NumPy's functions
that are those of the table with its axes exchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import reshape
from distvec.array.indexing.getitem import gathered
from distvec.graph import build
from ps_backend.program.types import array_type

LOCATING = {np.argmin, np.argmax, np.nanargmin, np.nanargmax}
"""Reductions that say where, which depends on the order of the elements unless an axis is named."""

WITH_AXIS = {
    np.sum, np.prod, np.min, np.max, np.amin, np.amax, np.any, np.all, np.mean, np.var, np.std,
    np.count_nonzero, np.ptp, np.average, np.nansum, np.nanprod, np.nanmean,
    np.nanvar, np.nanstd, np.nanmin, np.nanmax, np.median, np.nanmedian, *LOCATING,
}  # fmt: skip

RUNNING = {
    np.cumsum, np.cumprod, np.cumulative_sum, np.cumulative_prod, np.nancumsum, np.nancumprod,
}  # fmt: skip
"""Running results along an axis, in tables."""

ALONG_AXIS = {np.sort, np.argsort, np.partition, np.argpartition}
"""What is of the same shape."""

CHANGING = {
    np.fill_diagonal, np.put, np.put_along_axis, np.place, np.putmask, np.copyto,
}  # fmt: skip
"""What changes its first argument."""

QUANTILES = {np.quantile, np.percentile, np.nanquantile, np.nanpercentile}
"""Reductions along an axis that is not their first argument but one."""

OF_EITHER = {
    np.einsum, np.einsum_path, np.cov, np.corrcoef, np.linalg.multi_dot, np.result_type,
    np.can_cast, np.common_type, np.min_scalar_type, np.isrealobj, np.iscomplexobj,
    np.shares_memory, np.may_share_memory, np.array2string, np.array_str, np.array_repr,
    np.trace, np.diag, np.diagonal, np.linalg.trace, np.linalg.diagonal, np.linalg.norm,
    np.linalg.matrix_norm, np.linalg.vector_norm, np.linalg.qr, np.linalg.svd, np.linalg.svdvals,
    np.linalg.matrix_rank, np.linalg.cond, np.linalg.pinv, np.linalg.lstsq, np.linalg.solve,
    np.linalg.inv, np.linalg.det, np.linalg.slogdet, np.linalg.cholesky, np.linalg.eigh,
    np.linalg.eigvalsh, np.linalg.matrix_power,
}  # fmt: skip
"""What takes tables and transposes of tables."""

MAKING = {
    np.zeros, np.ones, np.empty, np.full, np.arange, np.eye, np.identity, np.tri, np.fromfunction,
    np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray, np.require,
    np.fromiter, np.frombuffer, np.fromstring, np.fromfile, np.loadtxt, np.genfromtxt,
}  # fmt: skip
"""What makes arrays, with ``like=`` one of either split."""

ELEMENTWISE = {
    np.isclose, np.allclose, np.array_equal, np.array_equiv, np.nan_to_num, np.clip, np.round,
    np.around, np.where, np.fix, np.sinc, np.i0, np.isposinf, np.isneginf, np.real, np.imag,
    np.angle, np.isreal, np.iscomplex, np.isin, np.zeros_like, np.ones_like, np.empty_like,
    np.full_like,
}  # fmt: skip


def flipped(operand: Any) -> Any:
    """``operand`` with its axes exchanged, to stand beside the table."""
    if isinstance(operand, Arithmetic):
        return _flipped(operand)
    rank = np.ndim(operand)
    if rank == 0:
        return operand
    if rank == 1:
        return np.asarray(operand)[:, None]
    return np.asarray(operand).T if isinstance(operand, list | tuple) else operand.T


def _flipped(operand: Any) -> Any:
    if operand.ndim == 0:
        return operand
    if operand.ndim == 1:
        return reshape(operand, (len(operand), 1))
    if operand.node.on_client or 1 in operand.shape:
        with operand.session.holders.lock:
            graph = operand.session.graph
            return operand.like(build.transpose(graph, build.collect(graph, operand.node)))
    return redistributed(operand)


def redistributed(table: Any) -> Any:
    """The transpose of a table, split by rows as the table is; lazy.

    Its elements go from server to server, and 8 bytes for each that say where it is.
    """
    n, k = table.shape
    flat = reshape(table, (n * k,))
    with table.session.holders.lock:
        graph = table.session.graph
        type = array_type(flat.node.type.space, np.dtype(np.int64))
        place = table.like(graph.make("iota", (), type))
    return reshape(gathered(flat, place % n * k + place // n), (k, n))


def exchanged(axis: Any) -> Any:
    """``axis`` of the transpose as one of the table. ``AxisError`` for one that there is not."""
    if axis is None:
        return None
    axes = [1 - one for one in normalize_axis_tuple(axis, 2)]
    return type(axis)(axes) if isinstance(axis, list | tuple) else axes[0]


def exchanged_key(key: Any, shape: tuple[int, int]) -> tuple[tuple[Any, Any], int]:
    """The key of the table for one of a transpose of ``shape``, and the rank of what it names.

    ``IndexError`` as NumPy's, ``TypeError`` for what makes other axes.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(one is None or np.ndim(one) > 1 for one in keys):
        raise TypeError(
            "a table that is split by columns takes a number, a slice, a vector of indices or a "
            "mask for its rows, and one for its columns; for masks of its shape write distvec.where"
        )
    if Ellipsis in [one for one in keys if not np.ndim(one)]:
        at = [one is Ellipsis for one in keys].index(True)
        keys[at : at + 1] = [slice(None)] * (3 - len(keys))
    keys += [slice(None)] * (2 - len(keys))
    if len(keys) > 2:
        raise IndexError(f"too many indices for array: array is 2-dimensional, but {key} were")
    for axis, one in enumerate(keys):
        _check_range(one, axis, shape[axis])
    rows, columns = keys
    if not isinstance(rows, slice) and np.ndim(rows) and np.asarray(rows).dtype == np.bool_:
        rows = np.flatnonzero(np.asarray(rows))
    vectors = sum(not isinstance(one, slice) and np.ndim(one) == 1 for one in keys)
    numbers = sum(not isinstance(one, slice) and np.ndim(one) == 0 for one in keys)
    return (columns, rows), 2 - numbers - (vectors == 2)


def _check_range(index: Any, axis: int, length: int) -> None:
    """``IndexError``, that names our own axis, for numbers out of range."""
    if isinstance(index, slice | Arithmetic):
        return
    numbers = np.asarray(index)
    if numbers.dtype.kind not in "iu":
        return
    for one in (numbers.min(initial=0), numbers.max(initial=-length)):
        if not -length <= one < length:
            raise IndexError(f"index {one} is out of bounds for axis {axis} with size {length}")
