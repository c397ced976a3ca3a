"""``a[mask]``: elements of a vector whose number only the servers know."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from distvec.array import reductions
from distvec.array.array import DistArray
from distvec.array.core import conversion
from distvec.array.core.handle import Handle, SessionBase, check_order, make
from distvec.array.core.operators import elementwise
from distvec.array.core.shapes import full, reshape
from distvec.array.indexing import compress, pull_push
from distvec.graph import build
from distvec.graph.node import Node
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import array_type


class NodeRef:
    """A node that a selection needs and nobody sees: it is held, but not stored for it."""

    __slots__ = ("__weakref__", "node")

    def __init__(self, node: Node) -> None:
        self.node = node

    def rebind(self, node: Node) -> None:
        """Stand for another node."""
        self.node = node


class Selection(DistArray):
    """Represent the elements that a boolean mask selects, ``values[mask]``.

    Elementwise operations on selections by one mask give another selection. Reductions, and
    assignment by the same mask, use values and mask directly, so the vector of the elements is not
    created. The length is a lazy scalar until it is needed.
    """

    __slots__ = ("_count", "_mask", "_node", "_values")

    def __init__(self, session: SessionBase, values: Node, mask: Node) -> None:
        """Only under the lock of the session's holders."""
        self.session = session
        self._write_lock = None
        self._count: Node | None = None
        self._node: Node | None = None
        self._select(values, mask)

    def _select(self, values: Node, mask: Node) -> None:
        self._values, self._mask = NodeRef(values), NodeRef(mask)
        for kept in (self._values, self._mask):
            if kept.node.depth < self.session.pending_depth // 2:
                self.session.holders.keep(kept)
            else:
                self.session.track(kept)

    # --- properties ---------------------------------------------------------------------------

    @property
    def selects(self) -> bool:  # type: ignore[override]
        """Whether the elements are not made yet."""
        return self._node is None

    _defers = selects

    @property
    def values(self) -> DistArray:
        """What the elements are chosen from."""
        with self.session.holders.lock:
            return DistArray(self.session, self._values.node)

    @property
    def mask(self) -> DistArray:
        """Which of them are chosen."""
        with self.session.holders.lock:
            return DistArray(self.session, self._mask.node)

    def shares_mask(self, other: Any) -> bool:
        """Whether ``other`` is a selection of the same places."""
        return isinstance(other, Selection) and other._mask.node is self._mask.node

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return self._values.node.dtype if self._node is None else self._node.dtype

    @property
    def _row(self) -> tuple[int, ...]:
        """The shape of one element: of a mask over rows a row."""
        row = self._values.node.type.row
        return row if len(self._mask.node.type.row) < len(row) else ()

    @property
    def ndim(self) -> int:
        """As of the array, if the mask is over its rows; else 1."""
        return 1 + len(self._row)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(count, ...)``: an implicit evaluation of the count, unless it is known."""
        return (len(self), *self._row)

    def __len__(self) -> int:
        if self._node is not None:
            return self._node.type.shape[0]
        count = self.count
        number = self.session.evaluate_implicitly(count, "the length of a selection")
        self.session.counts[self._mask.node] = count.node
        return int(number)

    @property
    def count(self) -> DistArray:
        """How many they are, as a lazy scalar."""
        counts, mask = self.session.counts, self._mask.node
        with self.session.holders.lock:
            found = counts.get(mask, self._count)
            if found is None:
                found = self._count = self.mask.sum().node
            elif found.known:
                counts[mask] = found
            result: DistArray = self.like(found)
            return result

    @property
    def size(self) -> int:
        """How many they are; as ``len``."""
        return math.prod(self.shape)

    def axis_length(self, axis: int) -> Any:
        """Length of an axis, lazy where that is the number of elements."""
        return (self.count, *self._row)[axis]

    @property
    def node(self) -> Node:
        """The array of the elements, which is made when somebody needs it."""
        if self._node is None:
            self._node = compress.elements(self.values, self.mask)
            self.session.track(self)
        return self._node

    @node.setter
    def node(self, node: Node) -> None:
        self._node = node

    def explain(self, format: Literal["text", "dot", "svg"] = "text") -> str:
        """What would be counted and computed, were the elements put together now."""
        return self.fill_unselected(0).explain(format) if self.selects else super().explain(format)

    # --- elements of it, lazily ---------------------------------------------------------------

    def like(self, node: Node) -> Any:
        """Another array of this session: ``node``."""
        return DistArray(self.session, node)

    def of(self, values: Handle) -> Self:
        """The selection of other ``values`` at the same places."""
        with self.session.holders.lock:
            return type(self)(self.session, values.node, self._mask.node)

    def copy(self, order: Any = "C") -> Any:
        """Another handle on the same value."""
        check_order(order)
        return self.of(self.values) if self.selects else self.like(self.node)

    def materialized(self) -> Any:
        """The elements as an array on the servers; not under the lock of the holders."""
        return self.like(self.node)

    def numpy(self) -> npt.NDArray[Any]:
        """The elements, pulled to the client."""
        return conversion.numpy(self.materialized())

    def pull(self, indices: Any = None) -> npt.NDArray[Any]:
        """Some of them, as of any array."""
        return pull_push.pull(self.materialized(), indices)

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True,
        copy: bool = True,
    ) -> Self:  # fmt: skip
        """The elements in another dtype; lazy."""
        if not self.selects:
            return self.materialized().astype(dtype, order, casting, subok, copy)  # type: ignore[no-any-return]
        return self.of(self.values.astype(dtype, order, casting, subok, copy))

    def apply_op(self, name: str, operands: tuple[Any, ...]) -> Any:
        """The op ``name`` on ``operands``: what is selected by one mask stays so.

        Beside selected rows of a table also what is the same for each of them.
        """
        if all(self._stays_beside(operand) for operand in operands):
            given = [one.values if isinstance(one, Selection) else one for one in operands]
            return self.of(elementwise(self.values, name, *given))
        given = [one.like(one.node) if isinstance(one, Selection) else one for one in operands]
        return elementwise(next(one for one in given if isinstance(one, Handle)), name, *given)

    def _stays_beside(self, operand: Any) -> bool:
        if isinstance(operand, Selection) and operand.selects:
            return self.shares_mask(operand)
        return np.ndim(operand) < self.ndim

    def assign(self, value: Handle, name: str = "assign") -> Self:
        """As of every array; nothing else changes, since a selection is a copy."""
        if not self.selects or not self._stays_beside(value):
            _ = self.node
            return super().assign(value, name)
        new = value.values if isinstance(value, Selection) else value
        changed = self.values.assign(new, name)
        with self.session.holders.lock:
            self._select(changed.node, self._mask.node)
        return self

    # --- reductions ---------------------------------------------------------------------------

    def fill_unselected(self, value: Any) -> DistArray:
        """An array as long as the mask, with ``value`` where it is false."""
        constant = full(self, (), value, self.dtype)
        return elementwise(self.values, "where", self._condition, self.values, constant)

    @property
    def _condition(self) -> DistArray:
        """The mask, in a shape that can stand beside the values."""
        mask = self.mask
        return reshape(mask, (len(mask), 1)) if self._row else mask

    def aligned_operands(self, other: Any) -> tuple[Any, Any]:
        """Both as vectors of one length whose inner product is that of the elements."""
        if not self.shares_mask(other) or self._row:
            return self, other
        return self.fill_unselected(0), other.fill_unselected(0)

    def reduce(self, op: str, axis: int | None, dtype: np.dtype[Any]) -> Any:
        """The reduction ``op`` over all elements, or along axis 0, in ``dtype``.

        Computed to a ``ValueError``, as NumPy's, if nothing is selected and ``op`` of nothing has
        no result.
        """
        reducer, reduce = REDUCERS[op], reductions.reduction_function(op)
        if axis == 1:
            return self.of(reduce(self.values, axis=1).astype(dtype))
        if reducer.locates and self._row:
            return reduce(self.like(self.node), axis=axis)
        if reducer.identity is not None:
            return reduce(self.fill_unselected(reducer.identity), axis=axis).astype(dtype)
        filled = self.fill_unselected(_neutral(self.dtype, reducer.numpy))
        result = reduce(filled, axis=axis).astype(dtype)
        if reducer.locates:  # the first of equals, so no place that was filled comes before it
            places = array_type(self._mask.node.type.space, np.int64)
            index = make(self, "iota", (), places)
            result = (self.mask & (index < result)).sum()
        with self.session.holders.lock:
            args = (result.node, self.count.node)
            return self.like(build.apply(self.session.graph, reducer.of_some, args, dtype))


def _neutral(dtype: np.dtype[Any], function: Any) -> Any:
    """What ``function`` does not choose among values of ``dtype``."""
    is_least_wanted = function in (np.minimum, np.fmin, np.argmin)
    if dtype.kind == "f" and function in (np.fmin, np.fmax):
        return np.nan
    if dtype.kind == "f":
        return np.inf if is_least_wanted else -np.inf
    if dtype.kind == "b":
        return is_least_wanted
    limits = np.iinfo(dtype)
    return limits.max if is_least_wanted else limits.min
