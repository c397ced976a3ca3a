"""Small arrays that the client keeps, joined along any axis; lazy, and without a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.array.creation import MOST_RANK
from distvec.array.operators import Arithmetic
from distvec.graph import build
from distvec.graph.build import check_dtype
from ps_backend.program.types import client_type


def joined_on_client(name: str, arrays: Sequence[Any], axis: int) -> Any:
    """``numpy.stack`` or ``numpy.concatenate``, by name; None where servers have one of ``arrays``.

    Some may be NumPy's. Errors are NumPy's.
    """
    given = list(arrays)
    ours = [one for one in given if isinstance(one, Arithmetic)]
    if not ours or any(not one.node.on_client for one in ours):
        return None
    graph = ours[0].session.graph
    nodes = []
    for one in given:
        if isinstance(one, Arithmetic):
            nodes.append(one.node)
        else:
            values = np.asarray(one)
            nodes.append(graph.client_value(values, check_dtype(values.dtype)))
    like = getattr(np, name)([np.empty(node.type.shape, node.dtype) for node in nodes], axis=axis)
    if like.ndim > MOST_RANK:
        raise NotImplementedError(f"{name}: the result has rank {like.ndim}, at most {MOST_RANK}")
    type = client_type(like.dtype, like.shape)
    with ours[0].session.holders.lock:
        return ours[0].like(build.on_client(graph, f"client.{name}", nodes, type, (axis,)))
