"""The elements that a sort would put at some ranks, without the sort's exchange of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.along_axis import take_along_axis
from distvec.array.items import get_item
from distvec.array.moving.core import move
from distvec.array.moving.sorting import sort
from ps_backend.program.sorting import ORDER_STATISTICS
from ps_backend.program.types import client_type


def order_statistics(x: Any, ranks: Any, axis: int) -> Any:
    """The elements of a vector or a table at ``ranks`` along ``axis``; NaN is the largest; lazy.

    ``ranks``: int64. Along axis 0 ``(count, 1)`` or ``(count, columns)``, NumPy's or lazy ones of
    the client; the client keeps the result, ``(count, *row)``; two messages to each server. Along
    axis 1 a vector of NumPy, or a table with a row of them for each row of ``x``.
    """
    if axis == 0:
        type = client_type(x.dtype, (ranks.shape[0], *x.shape[1:]))
        (found,) = move(ORDER_STATISTICS, [x], [ranks], [type])
        return found
    rows = sort(x, axis=1)
    if isinstance(ranks, np.ndarray):
        return get_item(rows, (slice(None), ranks))
    return take_along_axis(rows, ranks, 1)
