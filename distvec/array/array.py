"""``DistArray``, the array that users hold: a handle on a node; operators make new nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

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
from distvec.graph.node import Buffer, Node, topological
from distvec.planner.plan import Template


class DistArray(Arithmetic):
    """Represent an array on the parameter servers, of rank 0, 1 or 2.

    A DistArray is a lazy expression: operators, NumPy functions and the functions of ``distvec``
    add to it and send no request. ``float()``, ``bool()``, ``int()``, ``.item()``, ``.numpy()``,
    ``np.asarray()``, ``repr()``, ``.persist()`` and ``distvec.evaluate()`` evaluate it.

    A rank-0 array is a lazy scalar, a rank-1 array a vector, and a rank-2 array a table (a matrix).
    The rows of a table are split over the servers; the columns are split in ``T.T``. In-place
    operators and ``out=`` rebind the array to a new value. Other arrays that share the old value
    keep it.

    Parameters
    ----------
    session : Session
        Session that the array belongs to. Create arrays with its methods, such as
        ``session.array(values)``; programs do not call this constructor.
    node : Node
        Expression that the array stands for.

    See Also
    --------
    numpy.ndarray : The array on the client with the same operations.

    Notes
    -----
    An evaluation also computes other pending arrays if these need no further reads from memory.

    Examples
    --------
    >>> x = ps.array([1.0, 2.0, 3.0])
    >>> y = 2 * x + 1
    >>> y.sum()
    DistArray(15.0, dtype=float64, shape=())
    >>> y.numpy()
    array([3., 5., 7.])
    """

    __slots__ = ()
    __hash__ = None

    # --- properties ---------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of all elements together, on all servers.

        Returns
        -------
        int
            ``size * itemsize``.
        """
        return self.size * self.itemsize

    @property
    def itemsize(self) -> int:
        """Return the number of bytes of one element.

        Returns
        -------
        int
            The item size of ``dtype``.
        """
        return self.dtype.itemsize

    @property
    def T(self) -> DistArray:
        """Return the transpose.

        Returns
        -------
        DistArray
            Table of shape ``(k, n)``, split over the servers by columns. Scalars and vectors are
            returned unchanged.

        Notes
        -----
        Lazy, without data transfer.
        """
        return transposed.transpose(self)  # type: ignore[no-any-return]

    @property
    def mT(self) -> DistArray:
        """Return the transpose of a table.

        Returns
        -------
        DistArray
            Table of shape ``(k, n)``, as ``T`` returns it.

        Raises
        ------
        ValueError
            If the array is not a table.
        """
        return transposed.matrix_transpose(self)  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        """Return the name of the device that holds the elements, as the array API asks for it.

        Returns
        -------
        str
            Always ``"servers"``.
        """
        return "servers"

    # --- evaluation ---------------------------------------------------------------------------

    persist, numpy = conversion.persist, conversion.numpy
    item, tolist = conversion.item, conversion.tolist

    @property
    def buffer(self) -> Buffer:
        """Return the buffer on the servers that holds the elements; evaluate the array if needed.

        Returns
        -------
        Buffer
            Memory on the servers, with its ``id`` and ``type``. It lives as long as an array
            refers to it; use ``x.copy()`` if other threads change ``x``.

        Raises
        ------
        TypeError
            If the array is a scalar, which the client stores.
        """
        return conversion.buffer_of(self)

    @property
    def buffer_id(self) -> int:
        """Return the id of the buffer that holds the elements; evaluate the array if needed.

        Returns
        -------
        int
            Id of ``buffer``.
        """
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

    def explain(self, format: Literal["text", "dot", "svg"] = "text") -> str:
        """Describe the programs that compute this array, without running them.

        Parameters
        ----------
        format : {"text", "dot", "svg"}, default "text"
            ``"text"`` lists the programs. ``"svg"`` gives a drawing, which notebooks show.
            ``"dot"`` gives a graph for Graphviz.

        Returns
        -------
        str
            Each program with its passes over memory (``sweeps``): the arrays that a pass reads and
            writes, and the engine that runs it, with the reason. An array that is already
            computed shows the programs that computed it.

        Notes
        -----
        Sends no request.
        """
        stored = stored_table(self)
        known = stored.node.known
        template: Template | None = stored.node.origin if known else self.session.plan(stored)
        if format != "text":
            return Explanation(draw(template or Template([], []), format))
        if template is None:
            return Explanation("nothing to run: the values were put here, not computed")
        text = f"computed by {template}" if known else str(template)
        copied = [
            leaf.type.nbytes
            for leaf in topological([stored.node], lambda node: node.known)
            if leaf in self.session.uploads
        ]
        if copied:
            text += (
                f"\nnote: {len(copied)} operands ({sum(copied):,} bytes) were copied to the "
                f"servers; for values that are used again: y = session.array(values)"
            )
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
            "a DistArray belongs to the connection of its session and cannot be pickled; in Spark "
            "tasks use 'with ps.share(x) as w' (pull and push), 'with ps.round(x) as r' (push, "
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

    def transpose(self, *axes: int | tuple[int, ...] | None) -> DistArray:
        """Return the array with its axes in another order, like ``numpy.ndarray.transpose``.

        Parameters
        ----------
        *axes : int or tuple of int, optional
            The axes in their new order, as separate arguments or as one tuple. The default reverses
            them.

        Returns
        -------
        DistArray
            The transpose; lazy, without data transfer.

        Raises
        ------
        ValueError
            If ``axes`` is not a permutation of the axes.
        """
        given = axes[0] if len(axes) == 1 else axes or None
        return transposed.transpose(self, given)  # type: ignore[no-any-return]

    nonzero = take_put.nonzero

    def compress(
        self,
        condition: DistArray | npt.ArrayLike,
        axis: int | None = None,
        out: DistArray | None = None,
    ) -> DistArray:
        """Return the elements, rows or columns for which a condition is true.

        Parameters
        ----------
        condition : DistArray or array_like of bool
            Vector with one value for each place along ``axis``; a shorter one is extended by False.
        axis : int, optional
            Axis along which to select. None (default) selects elements of the flattened array.
        out : DistArray, optional
            Array of the result's shape that receives the result.

        Returns
        -------
        DistArray
            The selected elements; lazy.

        Raises
        ------
        ValueError
            If ``condition`` is not a vector.
        IndexError
            If ``condition`` is true beyond the end of the axis.
        """
        return take_put.compress(condition, self, axis, out)  # type: ignore[no-any-return]

    take = take_put.take

    put, choose = take_put.put, take_put.choose
    searchsorted = search.searchsorted
    repeat, swapaxes = repeating.repeat, rearrange.swapaxes
    diagonal, trace = diagonals.diagonal, diagonals.trace

    def fill(self, value: DistArray | float) -> None:
        """Set every element to one value.

        Parameters
        ----------
        value : number or DistArray
            New value, a scalar.

        Raises
        ------
        ValueError
            If ``value`` is not a scalar.

        Notes
        -----
        Lazy: the array is rebound to the new value.
        """
        if np.ndim(value):
            raise ValueError(
                f"fill: setting an array element with a sequence of shape {np.shape(value)}; "
                f"write x[...] = values"
            )
        setitem.set_item(self, Ellipsis, value)

    clip, round = elementwise.clip, elementwise.round

    def conj(self) -> DistArray:
        """Return the array itself: its elements are real.

        Returns
        -------
        DistArray
            This array.
        """
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

    def to_device(self, device: str, /, *, stream: None = None) -> DistArray:
        """Return the array itself, as the array API asks for it.

        Parameters
        ----------
        device : str
            Must be ``"servers"``, the only device.
        stream : None, optional
            Must be None.

        Returns
        -------
        DistArray
            This array.

        Raises
        ------
        ValueError
            If another device or a stream is given. Use ``x.numpy()`` for a copy on the client.
        """
        if device != self.device or stream is not None:
            raise ValueError(
                f"device must be {self.device!r} and stream None, got {device!r} and {stream!r}; "
                "copy the values to the client with x.numpy()"
            )
        return self


class ReadonlySlice(DistArray):
    """Represent a slice of an array. It cannot be assigned to: the array would not change.

    ``x[1:3] += 1`` and ``x[1:3] = y`` assign to ``x``. The result of an operation on a slice is an
    array like any other, and so is a copy of the slice.
    """

    __slots__ = ()
    is_readonly_slice = True

    def like(self, node: Node) -> Any:
        """Another array of this session: ``node``."""
        return DistArray(self.session, node)
