"""The registry's problem with its vector cut into arrays, in any structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from optim.core.arrays import namespace
from optim.core.trees import Structure, as_tree, as_user_structure
from tests.optim.registry import START


class Model(NamedTuple):
    """A named tuple of a user's."""

    weights: Any
    table: Any


@dataclass(frozen=True)
class Cut:
    """Shapes of the pieces, and how they are arranged: `structure(pieces)`."""

    shapes: tuple[tuple[int, ...], ...]
    structure: Callable[[list[Any]], Any]

    def of(self, vector: np.ndarray, array: Callable[[np.ndarray], Any] = np.array) -> Any:
        """The pieces of `vector`, each made by `array`, in the structure."""
        return self.structure([array(piece) for piece in self.pieces(vector)])

    def pieces(self, vector: np.ndarray) -> list[np.ndarray]:
        """NumPy arrays of the shapes."""
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])[:-1]
        parts = np.split(vector, ends)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def joined(x: Any) -> np.ndarray:
    """All elements of a structure as one NumPy vector."""
    leaves = (leaf.numpy() if hasattr(leaf, "numpy") else leaf for leaf in as_tree(x).leaves)
    return np.concatenate([np.asarray(leaf).ravel() for leaf in leaves])


STRUCTURES: dict[int, list[Callable[[list[Any]], Any]]] = {
    1: [lambda p: {"w": p[0]}, lambda p: (p[0],)],
    2: [lambda p: {"w": p[0], "V": p[1]}, tuple, list, lambda p: Model(*p)],
    3: [
        lambda p: {"w": p[0], "inner": {"a": p[1], 3: p[2]}},
        lambda p: (p[0], [p[1], p[2]]),
        lambda p: [Model(p[0], p[1]), {"last": p[2]}],
    ],
}


@st.composite
def cuts(draw: st.DrawFn, size: int = START.size) -> Cut:
    """One to three pieces, vectors and tables."""
    count = draw(st.integers(1, 3))
    ends = sorted(draw(st.sets(st.integers(1, size - 1), min_size=count - 1, max_size=count - 1)))
    sizes = [b - a for a, b in zip([0, *ends], [*ends, size], strict=True)]
    shapes = [draw(st.sampled_from([(n,), (n, 1)] + [(n // 2, 2)] * (n % 2 == 0))) for n in sizes]
    return Cut(tuple(shapes), draw(st.sampled_from(STRUCTURES[count])))


def cosh_of(cut: Cut, array: Callable[[np.ndarray], Any] = np.array) -> Callable[[Any], Any]:
    """`registry.ill_conditioned` as a function of the pieces."""
    roots = [array(piece) for piece in cut.pieces(np.logspace(0.0, 0.75, START.size))]

    def fun(x: Any) -> tuple[Any, Any]:
        tree = as_tree(x)
        assert Structure.of(x) == Structure.of(cut.of(START)), "not the structure of the start"
        value, gradients = 0.0, []
        for leaf, root in zip(tree.leaves, roots, strict=True):
            xp = namespace(leaf)
            up, down = xp.exp(root * (leaf - 1.0) / 3.0), xp.exp(-root * (leaf - 1.0) / 3.0)
            value = value + xp.sum(up + down)
            gradients.append(root * (up - down) / 3.0)
        return value, reordered(as_user_structure(type(tree)(tree.structure, tuple(gradients))))

    return fun


def reordered(value: Any) -> Any:
    """The same with the keys of all dicts the other way round."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return value


def arrays_in(value: Any) -> Iterator[Any]:
    """The arrays of a structure."""
    yield from as_tree(value).leaves
