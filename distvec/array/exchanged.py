"""What stands beside a table where something stands beside its transpose; and NumPy's functions
that are those of the table with its axes exchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distvec.array.creation import reshape
from distvec.array.operators import Arithmetic
from distvec.graph import shapes

LOCATING = {np.argmin, np.argmax, np.nanargmin, np.nanargmax}
"""Reductions that say where, which depends on the order of the elements unless an axis is named."""

WITH_AXIS = {
    np.sum, np.prod, np.min, np.max, np.amin, np.amax, np.any, np.all, np.mean, np.var, np.std,
    np.count_nonzero, np.linalg.norm, np.ptp, np.average, np.nansum, np.nanprod, np.nanmean,
    np.nanvar, np.nanstd, np.nanmin, np.nanmax, *LOCATING,
}  # fmt: skip

OF_EITHER = {np.einsum, np.cov, np.corrcoef}
"""What takes tables and transposes of tables."""

ELEMENTWISE = {
    np.isclose, np.allclose, np.array_equal, np.array_equiv, np.nan_to_num, np.clip, np.round,
    np.around, np.where, np.fix, np.sinc, np.i0, np.isposinf, np.isneginf, np.real, np.imag,
    np.angle, np.isreal, np.iscomplex, np.isin, np.zeros_like, np.ones_like, np.empty_like,
    np.full_like,
}  # fmt: skip


def flipped(operand: Any) -> Any:
    """``operand`` with its axes exchanged, to stand beside the table.

    ``TypeError`` for a table that the servers split by rows: its elements are elsewhere.
    """
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
            return operand.like(shapes.transposed(graph, shapes.collected(graph, operand.node)))
    raise TypeError(
        f"a table of shape {operand.shape} that is split by rows stands beside a transpose, which "
        f"is split by columns: make both alike, by session.space(n, split=...).array(x.numpy())"
    )


def exchanged(axis: Any) -> Any:
    """``axis`` of the transpose as one of the table. ``AxisError`` for one that there is not."""
    if axis is None:
        return None
    axes = tuple(1 - one for one in normalize_axis_tuple(axis, 2))
    return axes if isinstance(axis, tuple) else axes[0]
