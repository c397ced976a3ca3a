"""``DistArray``: what a user holds. A handle on a node; operators make new nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distvec.array import (
    elementwise,
    error_hints,
    products,
    reductions,
    statistics,
    take_put,
    transposed,
)
from distvec.array.collectives import scan, search
from distvec.array.collectives import sort as sorting
from distvec.array.core import conversion, shapes
from distvec.array.core.handle import stored_table
from distvec.array.core.operators import Arithmetic
from distvec.array.dispatch import functions, ufuncs
from distvec.array.dispatch.array_api import check_version
from distvec.array.error_hints import refuse_shuffle
from distvec.array.indexing import flatiter, getitem, pull_push, setitem
from distvec.array.manipulation import diagonals, rearrange
from distvec.array.manipulation import repeat as repeating
from distvec.array.repr import as_bundle, as_code, as_html, as_text
from distvec.diagnostics.draw import Explanation, draw, engines
from distvec.graph.node import Buffer, Node
from distvec.planner.plan import Template


class DistArray(Arithmetic):
    """An array on the servers: dtype, shape, space; rank 0 (a lazy scalar), 1 (a vector)
    or 2 (a table: its rows are split over the servers; of ``T.T`` its columns).

    Operators, NumPy functions and the functions of ``distvec`` build a graph and cost no message.
    ``float()``, ``bool()``, ``int()``, ``.item()``, ``np.asarray()``, ``repr()``, ``.numpy()``,
    ``distvec.evaluate()`` and ``.persist()`` evaluate it, with whatever else is pending and reads
    nothing new. In-place operators and ``out=`` make the handle stand for another value.
    """

    __slots__ = ()
    __hash__ = None

    # --- what it is ---------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take on all servers together."""
        return self.size * self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def T(self) -> Any:
        """With the axes in the other order: the array itself below rank 2, see ``transpose``."""
        return transposed.transpose(self)

    @property
    def mT(self) -> Any:
        """A table with its axes in the other order. ``ValueError`` below rank 2."""
        return transposed.matrix_transpose(self)

    @property
    def device(self) -> str:
        """Where the elements are, for the array API."""
        return "servers"

    # --- evaluation ---------------------------------------------------------------------------

    persist, numpy = conversion.persist, conversion.numpy
    item, tolist = conversion.item, conversion.tolist

    @property
    def buffer(self) -> Buffer:
        """As ``values.buffer_of``."""
        return conversion.buffer_of(self)

    @property
    def buffer_id(self) -> int:
        """Id of the buffer that holds the vector; evaluates it first if need be."""
        return self.buffer.id

    __bool__, __array__, __bytes__ = conversion.truth, conversion.as_array, conversion.as_bytes
    __dlpack__, __dlpack_device__ = conversion.dlpack, conversion.dlpack_device

    def __format__(self, spec: str) -> str:
        return format(self.scalar("format()"), spec) if self.ndim == 0 else str(self)

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return as_code(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return as_bundle(self)

    def explain(self, format: str = "text") -> str:
        """The programs that would compute this array now, or those that computed it.

        Their sweeps, what these read and write, and which engine runs each, and why.
        ``format``: ``"text"``; ``"dot"``, for Graphviz; or ``"svg"``, a drawing by Graphviz'
        command ``dot``, which must be installed for it.
        """
        stored = stored_table(self)
        known = stored.node.known
        template: Template | None = stored.node.origin if known else self.session.plan(stored)
        if format != "text":
            return Explanation(draw(template or Template([], []), format))
        if template is None:
            return Explanation("nothing to run: the values were put here, not computed")
        text = f"computed by {template}" if known else str(template)
        return Explanation("\n".join([text, *engines(template, self.session.client.engine)]))

    # --- single elements ----------------------------------------------------------------------

    pull, push = pull_push.pull, pull_push.push

    def __getitem__(self, key: Any) -> Any:
        return getitem.get_item(self, key)

    flat = property(flatiter.flat_of, flatiter.set_flat)

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is int:
            refuse_shuffle(value)
        setitem.set_item(self, key, value)

    __iter__, __contains__ = conversion.iterate, conversion.contains
    blocks = conversion.blocks

    # --- methods as NumPy's -------------------------------------------------------------------

    __copy__ = Arithmetic.copy

    def __deepcopy__(self, memo: dict[int, Any]) -> DistArray:
        return self.copy()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a DistArray belongs to its session's connection and cannot be pickled; Spark tasks "
            "use it by 'with ps.share(x) as w' (pull and push), 'with ps.round(x) as r' (push, "
            "each partition once) or run(train, rdd, x); for a copy send x.numpy()"
        )

    sum, prod = reductions.sum, reductions.prod
    min, max = reductions.min, reductions.max
    argmin, argmax = reductions.argmin, reductions.argmax
    any, all, mean = reductions.any, reductions.all, reductions.mean
    var, std = statistics.var, statistics.std
    dot, __matmul__ = products.dot, products.matmul_operator
    __rmatmul__, __imatmul__ = products.matmul_reflected, products.matmul_in_place
    cumsum, cumprod = scan.cumsum, scan.cumprod
    sort, argsort = sorting.sort_in_place, sorting.argsort_method
    partition, argpartition = sorting.partition_in_place, sorting.argpartition
    reshape, squeeze = rearrange.reshape_method, shapes.squeeze
    ravel = flatten = rearrange.ravel

    def transpose(self, *axes: Any) -> Any:
        """As ``numpy.transpose``."""
        given = axes[0] if len(axes) == 1 else axes or None
        return transposed.transpose(self, given)

    nonzero = take_put.nonzero

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        """The elements where ``condition`` is true; lazy."""
        return take_put.compress(condition, self, axis, out)

    take = take_put.take

    put, choose = take_put.put, take_put.choose
    searchsorted = search.searchsorted
    repeat, swapaxes = repeating.repeat, rearrange.swapaxes
    diagonal, trace = diagonals.diagonal, diagonals.trace

    def fill(self, value: Any) -> None:
        """Let every element be ``value``."""
        if np.ndim(value):
            raise ValueError(
                f"fill: setting an array element with a sequence of shape {np.shape(value)}; "
                f"write x[...] = values"
            )
        setitem.set_item(self, Ellipsis, value)

    clip, round = elementwise.clip, elementwise.round

    def conj(self) -> DistArray:
        """The array itself: its elements are real."""
        return self

    conjugate = conj
    real = property(elementwise.real, elementwise.set_real)
    imag = property(elementwise.imag, elementwise.refuse_imag)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(error_hints.array_hint(name), name=name, obj=self)

    # --- protocols ----------------------------------------------------------------------------

    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return ufuncs.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return functions.function(self, func, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        check_version(api_version)
        return self.session.namespace

    def to_device(self, device: Any, /, *, stream: Any = None) -> DistArray:
        """The array itself: ``"servers"`` is the only device. ``ValueError`` for another."""
        if device != self.device or stream is not None:
            raise ValueError(
                f"device={device!r}: arrays are on {self.device!r}; to the client by x.numpy()"
            )
        return self


class ReadonlySlice(DistArray):
    """What a slice of an array gave. Nothing is assigned into it: that would not reach the array.

    ``x[1:3] += 1`` and ``x[1:3] = y`` assign to ``x``. What is computed from a window is an array
    like any other, and so is its copy.
    """

    __slots__ = ()
    is_readonly_slice = True

    def like(self, node: Node) -> Any:
        """Another array of this session: ``node``."""
        return DistArray(self.session, node)
