"""Parameters in several arrays: a dict, tuple or list of arrays as one vector.

Users write such structures; solvers see one array, a `Tree`: operators and functions are applied
array by array, reductions go over all of them. A result has the structure of the start.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import islice, repeat
from typing import Any, ClassVar

import numpy as np

from optim.core import arrays
from optim.core.arrays import Array, Namespace, Scalar, namespace, own, size, vdot


def is_structure(value: Any) -> bool:
    """Whether `value` is arrays in a structure: a dict, or a tuple or list that holds an array.

    A container of such a structure is one as well. Numbers in lists, nested or not, are one array.
    """
    if isinstance(value, Mapping):
        return True
    return isinstance(value, (tuple, list)) and any(
        is_structure(part) or len(getattr(part, "shape", ())) > 0 for part in value
    )


@dataclass(frozen=True)
class Structure:
    """A dict, tuple or list of parts, each a structure again; or an array, which is of no kind.

    kind    dict, tuple, list, or the class of a named tuple; None for an array
    keys    by which the parts are found
    """

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()

    @classmethod
    def of(cls, value: Any) -> Structure:
        """The structure of `value`."""
        if not is_structure(value):
            return cls()
        items = dict(value) if isinstance(value, Mapping) else dict(enumerate(value))
        kind = dict if isinstance(value, Mapping) else type(value)
        return cls(kind, tuple(items), tuple(cls.of(part) for part in items.values()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays behind the name of the whole: "['w']", "[0][1]", ".bias"."""
        if self.kind is None:
            return ("",)
        pairs = zip(self.keys, self.parts, strict=True)
        return tuple(self.place(key) + name for key, part in pairs for name in part.names)

    def place(self, key: Any) -> str:
        """How the part of that key is written in Python."""
        fields = getattr(self.kind, "_fields", None)
        return f".{fields[key]}" if fields else f"[{key!r}]"

    def arranged(self, arrays: Iterator[Any]) -> Any:
        """The next of `arrays`, in this structure."""
        if self.kind is None:
            return next(arrays)
        parts = [part.arranged(arrays) for part in self.parts]
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        return self.kind(*parts) if hasattr(self.kind, "_fields") else self.kind(parts)

    def arrays(self, value: Any, name: str, *, numbers: bool = False) -> Iterator[Any]:
        """The arrays of `value`, which must be arranged in the same way; errors call it `name`.

        numbers     one number, or None, may stand for all arrays of a part
        """
        if self.kind is None:
            if is_structure(value):
                raise TypeError(f"{name} must be one array, but is a {type(value).__name__}")
            yield value
        elif numbers and _is_number(value):
            yield from repeat(value, len(self.names))
        else:
            own = zip(self.keys, self.parts, self.values(value, name), strict=True)
            for key, part, inner in own:
                yield from part.arrays(inner, name + self.place(key), numbers=numbers)

    def values(self, value: Any, name: str) -> list[Any]:
        """The part of `value` for each key; `value` is arranged as this, at least at the top."""
        self._check(value, name)
        return [value[key] for key in self.keys]

    def _check(self, value: Any, name: str) -> None:
        if self.kind is dict:
            if not isinstance(value, Mapping):
                raise TypeError(f"{name} must be {self}, but is {_kind_of(value)}")
            if set(value) != set(self.keys):
                raise ValueError(f"{name} must be {self}, but has {_join_keys(value)}")
        elif not isinstance(value, (tuple, list)):
            raise TypeError(f"{name} must be {self}, but is {_kind_of(value)}")
        elif len(value) != len(self.keys):
            raise ValueError(f"{name} must be {self}, but has {len(value)} parts")

    def __str__(self) -> str:
        if self.kind is None:
            return "one array"
        if self.kind is dict:
            return f"a dict with the keys {_join_keys(self.keys)}"
        return f"a {self.kind.__name__} of {len(self.keys)} parts"


def _join_keys(keys: Any) -> str:
    return ", ".join(map(repr, keys)) or "no keys"


def _kind_of(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return f"a {kind}" if shape is None else f"a {kind} of shape {tuple(shape)}"


def _is_number(value: Any) -> bool:
    return value is None or (hasattr(value, "__float__") and getattr(value, "shape", ()) == ())


# Functions of the array API that compute each element of the result from one element of x.
_ELEMENTWISE = frozenset(
    "abs clip exp expm1 isfinite isinf isnan log log1p logical_and logical_not logical_or maximum "
    "minimum sign sqrt square tanh where".split()
)


def _operators(operation: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """An operator of two operands, and the same with the tree as the right one."""

    def forward(self: Tree, other: Any) -> Any:
        return map_arrays(operation, self, other)

    def backward(self: Tree, other: Any) -> Any:
        return map_arrays(operation, other, self)

    return forward, backward


@dataclass(frozen=True, eq=False, repr=False)
class Tree:
    """Arrays of any shapes in a structure, with the operators of one vector of all elements.

    The other operand is a tree of the same structure or of numbers for its arrays or parts, or a
    number. `dtype` is the least precise dtype of the arrays, which all keep their own.
    """

    structure: Structure
    leaves: tuple[Array, ...]

    __array_ufunc__: ClassVar[None] = None  # So NumPy leaves operators to this class.

    @classmethod
    def of(cls, value: Any) -> Tree:
        """The arrays, or numbers, of a structure as they are; lists of numbers as NumPy arrays."""
        structure = Structure.of(value)
        given = structure.arrays(value, "x")
        return cls(
            structure,
            tuple(np.asarray(leaf) if isinstance(leaf, (list, tuple)) else leaf for leaf in given),
        )

    def arranged(self) -> Any:
        """The arrays in the user's structure."""
        return self.structure.arranged(iter(self.leaves))

    def spread(self, value: Any, name: str) -> Tree:
        """`value`, arranged as this tree or with numbers for arrays or parts; errors say `name`."""
        given = self.structure.arrays(as_user_structure(value), name, numbers=True)
        return Tree(self.structure, tuple(given))

    def parts(self) -> list[Array]:
        """The arrays, or trees, under the keys of the structure."""
        rest = iter(self.leaves)
        own = ((part, tuple(islice(rest, len(part.names)))) for part in self.structure.parts)
        return [leaves[0] if part.kind is None else Tree(part, leaves) for part, leaves in own]

    def joined(self, parts: Iterable[Array]) -> Tree:
        """A tree of this structure, of its parts."""
        found = (leaf for part in parts for _, leaf in named_leaves(part))
        return Tree(self.structure, tuple(found))

    def __repr__(self) -> str:
        return f"Tree({self.arranged()!r})"

    @property
    def shape(self) -> tuple[int]:
        """The shape of the vector of all elements."""
        return (sum(map(_size, self.leaves)),)

    @property
    def dtype(self) -> Any:
        """The dtype of all arrays; of several, the least precise."""
        dtypes = list(dict.fromkeys(leaf.dtype for leaf in self.leaves))
        if len(dtypes) == 1:
            return dtypes[0]
        return max(dtypes, key=lambda one: namespace(self).finfo(one).eps)

    def __array_namespace__(self, api_version: str | None = None) -> TreeNamespace:
        first = next((leaf for leaf in self.leaves if hasattr(leaf, "dtype")), None)
        return TreeNamespace(namespace(first))

    def __matmul__(self, other: Tree) -> Scalar:
        pairs = zip(self.leaves, _parts_for(self, other), strict=True)
        return reduce(operator.add, (vdot(mine, its) for mine, its in pairs))

    __add__, __radd__ = _operators(operator.add)
    __sub__, __rsub__ = _operators(operator.sub)
    __mul__, __rmul__ = _operators(operator.mul)
    __truediv__, __rtruediv__ = _operators(operator.truediv)
    __pow__, __rpow__ = _operators(operator.pow)
    __and__, __rand__ = _operators(operator.and_)
    __or__, __ror__ = _operators(operator.or_)
    __lt__, _ = _operators(operator.lt)
    __le__, _ = _operators(operator.le)
    __gt__, _ = _operators(operator.gt)
    __ge__, _ = _operators(operator.ge)
    __eq__, _ = _operators(operator.eq)
    __ne__, _ = _operators(operator.ne)
    __hash__ = object.__hash__

    def __neg__(self) -> Any:
        return map_arrays(operator.neg, self)

    def __bool__(self) -> bool:
        raise TypeError(
            "the truth value of several arrays is ambiguous; reduce them to a number first"
        )


def map_arrays(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args) array by array; numbers, and trees of numbers, go along with each array.

    An error gets a note that says at which array it was.
    """
    trees = [arg for arg in args if isinstance(arg, Tree)]
    if not trees:
        return function(*args)
    # A tree of weights may have one number for a whole part.
    largest = max(trees, key=lambda tree: len(tree.leaves))
    results = []
    for name, *values in zip(
        largest.structure.names, *(_parts_for(largest, arg) for arg in args), strict=True
    ):
        try:
            results.append(function(*values))
        except (TypeError, ValueError) as error:
            error.add_note(f"The error is in the array {name} of the parameters.")
            raise
    return Tree(largest.structure, tuple(results))


def _parts_for(tree: Tree, value: Any) -> tuple[Any, ...]:
    """The part of `value` that belongs to each array of `tree`."""
    if isinstance(value, Tree):
        if value.structure is tree.structure or value.structure == tree.structure:
            return value.leaves
        return tree.spread(value, "the other operand").leaves
    if len(getattr(value, "shape", ())) > 0:
        raise TypeError(
            f"x holds several arrays, but the other operand is one array of shape "
            f"{tuple(value.shape)}; give {tree.structure}, like x, or one number for all"
        )
    return tuple(_as_precise(value, leaf) for leaf in tree.leaves)


def _as_precise(scalar: Any, leaf: Array) -> Any:
    """`scalar` in the dtype of `leaf`: one that comes of more precise arrays changes no dtype."""
    dtype, wanted = getattr(scalar, "dtype", None), getattr(leaf, "dtype", None)
    if dtype is None or wanted is None or dtype == wanted:
        return scalar
    xp = namespace(leaf)
    floating = xp.isdtype(wanted, "real floating")
    return xp.astype(xp.asarray(scalar), wanted) if floating else scalar


@dataclass(frozen=True)
class TreeNamespace:
    """The part of the array API that solvers use, for trees of arrays of the namespace `xp`."""

    xp: Namespace

    def sum(self, x: Tree) -> Scalar:
        """The sum of all elements."""
        return reduce(operator.add, self._reduce("sum", x))

    def max(self, x: Tree) -> Scalar:
        """The largest element."""
        return reduce(self.xp.maximum, self._reduce("max", x))

    def min(self, x: Tree) -> Scalar:
        """The smallest element."""
        return reduce(self.xp.minimum, self._reduce("min", x))

    def astype(self, x: Tree, dtype: Any) -> Tree:
        """All arrays in one dtype."""
        return Tree(x.structure, tuple(namespace(leaf).astype(leaf, dtype) for leaf in x.leaves))

    def finfo(self, dtype: Any) -> Any:
        """The properties of the arrays' dtype."""
        return self.xp.finfo(dtype)

    def _reduce(self, name: str, x: Tree) -> list[Scalar]:
        return [getattr(namespace(leaf), name)(leaf) for leaf in x.leaves]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _ELEMENTWISE:
            raise AttributeError(
                f"{name} is not defined for parameters in several arrays; use operators, sum, max, "
                f"min, or elementwise functions: {', '.join(sorted(_ELEMENTWISE))}"
            )
        return partial(map_arrays, getattr(self.xp, name))


def as_tree(value: Any) -> Any:
    """A structure of arrays or numbers as a tree; anything else as it is."""
    return Tree.of(value) if is_structure(value) else value


def named_leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of a tree with their names; a single array has no name."""
    if isinstance(value, Tree):
        return zip(value.structure.names, value.leaves, strict=True)
    return iter([("", value)])


def as_user_structure(x: Array) -> Any:
    """`x` as the user sees it: the structure of a tree; an array as it is."""
    return x.arranged() if isinstance(x, Tree) else x


def _size(leaf: Any) -> int:
    return size(leaf) if hasattr(leaf, "shape") else 1


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
        raise TypeError(f"{name} must hold arrays of one library, got {sorted(libraries)}")
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
        return like(self.function(*map(as_user_structure, (x, *others))), x, self.name)


def lift(function: Callable[..., Any], name: str) -> Lifted:
    """`function`, called `name` in errors, made to take trees."""
    return function if isinstance(function, Lifted) else Lifted(function, name)
