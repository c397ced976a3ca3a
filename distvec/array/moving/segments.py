"""``ufunc.reduceat``: what lies between indices of axis 0, reduced.

A movement of two phases. The client gets the results, a row for each index; between servers go
those of pieces: 8 bytes for each index, block and column.
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.moving.core import move
from distvec.array.moving.scans import cast_to, dtype_of, scan_of
from distvec.array.operators import Arithmetic
from distvec.array.reduction_keywords import accumulation_dtype, stored, target_of
from distvec.array.signatures import as_arrays
from distvec.graph.build import on_client
from distvec.graph.host_eval import MOST_ELEMENTS
from ps_backend.program.types import client_type


def reduceat(
    ufunc: np.ufunc, x: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None
) -> Any:
    """``ufunc.reduceat``: ``ufunc.reduce(x[i:j])`` for each index and the next one; lazy.

    Of an index that the next one does not exceed, the element there. The last goes to the end.
    ``indices`` are the client's. ``IndexError`` for one out of range, ``TypeError`` for a ufunc
    that is not in the table of scans, ``NotImplementedError`` along axis 1 of what is on servers.
    """
    scan = scan_of(ufunc, "reduceat")
    (array,) = as_arrays((x,))
    if out is not None:
        kind = accumulation_dtype(target_of(out, "reduceat"), array) if dtype is None else dtype
        return stored(out, reduceat(ufunc, array, indices, axis, kind), scan.name)
    if array.ndim == 0:
        raise TypeError("cannot reduceat on a scalar")
    array = array.made()
    over = normalize_axis_index(operator.index(axis), array.ndim)
    starts = _checked(ufunc, indices, array.shape[over])
    kind = dtype_of(scan, array.dtype, dtype)
    shape = tuple(len(starts) if k == over else one for k, one in enumerate(array.shape))
    with array.session.holders.lock:
        graph, node = array.session.graph, cast_to(scan, array.node, kind, array)
        if node.on_client:
            given = scan.name, tuple(starts.tolist()), over, kind.name
            type = client_type(kind, shape)
            return array.like(on_client(graph, "client.reduceat", (node,), type, given))
        source = array.like(node)
    if over:
        raise NotImplementedError(
            f"numpy.{scan.name}.reduceat along axis 1 of a table is not available on the servers; "
            f"reduce some columns, as in numpy.{scan.name}.reduce(x[:, i:j], axis=1)"
        )
    if prod(shape) > MOST_ELEMENTS:
        raise NotImplementedError(
            f"reduceat: the client gets {len(starts)} rows, which are more than {MOST_ELEMENTS} "
            f"elements; give fewer indices at once"
        )
    if not len(starts):
        return array.like(graph.client_value(np.empty(shape, kind), kind))
    (found,) = move(scan.between, [source], [starts], [client_type(kind, shape)])
    return found


def _checked(ufunc: np.ufunc, indices: Any, length: int) -> npt.NDArray[np.int64]:
    if isinstance(indices, Arithmetic):
        raise TypeError(
            f"numpy.{ufunc.__name__}.reduceat: indices on the servers; pull them: indices.numpy()"
        )
    found = np.asarray(indices).astype(np.int64)
    if found.ndim != 1:
        raise ValueError(f"reduceat: needs a vector of indices, got shape {found.shape}")
    for index in found[(found < 0) | (found >= length)][:1]:
        raise IndexError(f"index {index} out-of-bounds in {ufunc.__name__}.reduceat [0, {length})")
    return found
