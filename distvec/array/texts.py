"""NumPy's functions that make texts of arrays: of the elements that they print, which come here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array import printing


def array2string(
    a: Any, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None,
    separator: str = " ", prefix: str = "", *, threshold: Any = None, edgeitems: Any = None,
    **options: Any,
) -> str:  # fmt: skip
    """``numpy.array2string``; an implicit transfer of the elements that are printed."""
    limits = {"threshold": threshold, "edgeitems": edgeitems}
    with np.printoptions(**{name: limit for name, limit in limits.items() if limit is not None}):
        return printing.printed(
            a, "np.array2string()", max_line_width=max_line_width, precision=precision,
            suppress_small=suppress_small, separator=separator, prefix=prefix, **options,
        )  # fmt: skip


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.array2string: array2string,
        np.array_str: lambda a, max_line_width=None, precision=None, suppress_small=None: (
            array2string(a, max_line_width, precision, suppress_small)
        ),
        np.array_repr: lambda arr, *_, **__: repr(arr),
    }
