"""Between users, who write dicts, tuples and lists of arrays, and solvers, which see one array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core import arrays
from optim.core.arrays import Array, namespace, own, size
from optim.core.structure import Structure, is_structure
from optim.core.trees import Tree, arranged, named_leaves


def as_start(x0: Any, name: str = "x0") -> Array:
    """`x0` as floating arrays that no caller's later write can change; a structure as a tree."""
    if isinstance(x0, Tree):
        return x0
    if not is_structure(x0):
        return arrays.as_start(x0, name)
    structure = Structure.of(x0)
    if not structure.names:
        raise ValueError(f"{name} must hold at least one array, but is {x0!r}")
    named = zip(structure.names, structure.arrays(x0, name), strict=True)
    leaves = [arrays.as_start(leaf, name + place) for place, leaf in named]
    libraries = {getattr(namespace(leaf), "__name__", "") for leaf in leaves}
    if len(libraries) > 1:
        raise TypeError(f"{name} must hold arrays of one library, but has {sorted(libraries)}")
    return Tree(structure, tuple(leaves))


def like(given: Any, x: Array, name: str) -> Array:
    """`given`, a function's result, checked to be arranged and shaped as `x`; no one else's."""
    if not isinstance(x, Tree):
        return own(given, x, f"the {name}")
    if isinstance(given, Tree):
        return given
    mine = zip(x.structure.names, x.structure.arrays(given, name), x.leaves, strict=True)
    return Tree(
        x.structure,
        tuple(own(leaf, its, f"{name}{place}", f"x{place}") for place, leaf, its in mine),
    )


def array_of(elements: np.ndarray, x: Array) -> Array:
    """The vector `elements`, one for each of `x`, as an array of its library, shape and dtype."""
    if not isinstance(x, Tree):
        xp = namespace(x)
        return xp.astype(xp.asarray(elements.reshape(x.shape)), x.dtype)
    ends = np.cumsum([size(leaf) for leaf in x.leaves])[:-1]
    return Tree(x.structure, tuple(map(array_of, np.split(elements, ends), x.leaves)))


def coordinate(x: Array, i: int) -> str:
    """The index of element `i` of all of `x`, as Python writes it: "[3]", "['V'][3, 2]"."""
    for name, leaf in named_leaves(x):
        if i < size(leaf):
            return f"{name}[{', '.join(map(str, np.unravel_index(i, tuple(leaf.shape))))}]"
        i -= size(leaf)
    raise IndexError(f"x has no element {i}")


@dataclass(frozen=True)
class Lifted:
    """A user's `function(x, ...)`, whose result is like x, as a function of trees as well."""

    function: Callable[..., Any]
    name: str

    def __call__(self, x: Array, *others: Any) -> Array:
        if not isinstance(x, Tree):
            return self.function(x, *others)
        return like(self.function(*map(arranged, (x, *others))), x, self.name)


def lifted(function: Callable[..., Any], name: str) -> Lifted:
    """`function`, called `name` in errors, made to take trees."""
    return function if isinstance(function, Lifted) else Lifted(function, name)
