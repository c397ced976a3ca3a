"""Examples of NumPy's public names on arrays of the servers, for docs/reference/numpy.md."""

from __future__ import annotations

from functools import cache

from docs.numpy_examples import (
    creation,
    elementwise,
    methods,
    products,
    reductions,
    shapes,
    sorting,
    texts,
    ufuncs,
)


@cache
def examples() -> dict[str, tuple[str, ...]]:
    """By name, as ``np.sum``, ``np.linalg.norm`` or ``x.sum``, the texts of its examples."""
    found = ufuncs.examples()
    for module in (
        elementwise, reductions, sorting, shapes, creation, products, texts, methods,
    ):  # fmt: skip
        found |= module.EXAMPLES
    return found
