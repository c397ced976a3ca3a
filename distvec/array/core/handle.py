"""The base of all arrays: a handle on a node of a graph, changed by one thread at a time.

Nodes are made, and results wrapped, in one place. The code that reads a node to make another one
holds the lock of the session's live values, so that no program takes over the memory that it
reads. A boolean-mask selection needs evaluations, which must not run under that lock: they come
before.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.node import Graph, Node
from distvec.runtime.evaluator import Evaluator
from ps_backend.client import Client, hold_lock, hold_lock_if_handled
from ps_backend.program import ops
from ps_backend.program.spaces import DenseSpace, Space
from ps_backend.program.types import ArrayType, ClientType, NodeType

Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


class SessionBase(Evaluator):
    """The part of a session that its arrays use: an evaluator that makes other arrays, too."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.spaces: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """Its keyed spaces that somebody has, by number."""

    def array(self, values: Any, dtype: Any = None) -> Any:
        """A copy of ``values``: on the servers, unless they are few."""
        raise NotImplementedError

    def _put(self, values: Any, dtype: Any = None) -> Any:
        """A copy of ``values`` on the servers."""
        raise NotImplementedError

    def select(self, values: Any, mask: Any) -> Any:
        """Return the elements of ``values`` that the aligned ``mask`` selects; lazy."""
        raise NotImplementedError

    def scatter(self, x: Any, indices: Any, values: Any) -> Any:
        """``x`` with ``values`` at ``indices``, an array on the servers; lazy but for errors."""
        raise NotImplementedError

    def readonly_slice(self, values: Any) -> Any:
        """Return the array ``values`` as a slice, which cannot be assigned to."""
        raise NotImplementedError

    def _transposed(self, table: Any) -> Any:
        """The transpose of ``table``, which servers have: it is split by columns."""
        raise NotImplementedError

    @property
    def namespace(self) -> Any:
        """Return the array API namespace; its creation functions make arrays in this session."""
        raise NotImplementedError

    def joinable(self) -> Any:
        """Return a picklable reference that lets another process join this session.

        Returns
        -------
        object
            Stands for the session in copies of keyed arrays that are sent to other processes.

        Raises
        ------
        TypeError
            If other processes cannot join a session of this kind this way.
        """
        raise TypeError(
            f"an array of a {type(self).__name__} cannot be sent to another process; connect there "
            "with dv.connect(addresses, token=...), or use an array of a PSContext in Spark tasks"
        )


class HasSession(Protocol):
    """An object that belongs to a session."""

    @property
    def session(self) -> Any:
        """That one."""


class Handle:
    """Stands for a node: the value that the array has, or will have once it is evaluated.

    Operations make other handles. To change an array is to let its handle stand for another node.
    """

    __slots__ = ("__weakref__", "_write_lock", "node", "session")

    selects: ClassVar[bool] = False
    """Whether this is some of the elements of another array: see ``selection``."""
    is_readonly_slice: ClassVar[bool] = False
    """Whether a slice gave it, into which nothing is assigned: see ``window``."""
    is_split_by_columns: ClassVar[bool] = False
    """Whether servers have its columns, and so its transpose: see ``column_split``."""
    _defers: ClassVar[bool] = False
    """Whether ``beside_others`` says what elementwise operations on it are."""

    def __init__(self, session: SessionBase, node: Node) -> None:
        self.session = session
        self.node = node
        """The expression this array stands for. Who reads it to make another array of it does so
        under the lock of ``session.holders``."""
        self._write_lock: threading.RLock | None = None
        if node.value is None or not node.on_client:  # else it is not to be computed, nor stored
            session.track(self)

    def like(self, node: Node) -> Self:
        """Return another array of this session.

        Parameters
        ----------
        node : Node
            Expression that the new array stands for.

        Returns
        -------
        DistArray
            Array of the same session.
        """
        return type(self)(self.session, node)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the elements.

        Returns
        -------
        numpy.dtype
            A boolean, integer or floating dtype.
        """
        return self.node.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the lengths of the axes.

        Returns
        -------
        tuple of int
            ``()`` for a scalar, ``(n,)`` for a vector, ``(n, k)`` for a table.
        """
        return self.node.type.shape

    @property
    def ndim(self) -> int:
        """Return the rank of the array.

        Returns
        -------
        int
            0, 1 or 2.
        """
        return len(self.node.type.shape)

    @property
    def size(self) -> int:
        """Return the number of elements.

        Returns
        -------
        int
            The product of the lengths in ``shape``.
        """
        return prod(self.node.type.shape)

    @property
    def type(self) -> ArrayType:
        """Return the type that describes the array to servers and Spark tasks.

        Returns
        -------
        ArrayType
            Index space of axis 0, dtype and shape of a row.

        Raises
        ------
        TypeError
            If the array is a scalar, which the client stores.

        Notes
        -----
        An array that the client stores moves to the servers.
        """
        type = self.node.type
        if isinstance(type, ClientType):
            type = self.move_to_servers().node.type
        if isinstance(type, ClientType):
            raise TypeError(f"this array of shape {type.shape} is stored on the client")
        return type

    def move_to_servers(self) -> Self:
        """Store the array on the servers from now on, if it is a small one of the client; lazy.

        Returns
        -------
        DistArray
            This array. A scalar stays on the client.
        """
        if self.ndim and self.node.on_client:
            with self.write_lock, self.session.holders.lock:
                node, graph = self.node, self.session.graph
                self.rebind(build.put_on_servers(graph, node, DenseSpace(node.type.shape[0])))
        return self

    @property
    def space(self) -> Space:
        """Return the index space of axis 0, which says how rows are split over the servers.

        Returns
        -------
        Space
            Arrays in the same space are aligned: the same server holds the same rows.

        Raises
        ------
        TypeError
            If the array is a scalar, which the client stores.
        """
        return self.type.space

    def __len__(self) -> int:
        if not self.node.type.shape:
            raise TypeError("len() of unsized object")
        return self.node.type.shape[0]

    def astype(
        self, dtype: npt.DTypeLike, order: str = "K", casting: Casting = "unsafe", subok: bool =
        True, copy: bool = True,
    ) -> Self:  # fmt: skip
        """Return the array in another dtype; lazy.

        Parameters
        ----------
        dtype : dtype
            Boolean, integer or floating dtype of the result.
        order : {"C", "F", "A", "K"}, default "K"
            Accepted for compatibility with NumPy; has no effect.
        casting : {"no", "equiv", "safe", "same_kind", "unsafe"}, default "unsafe"
            Which casts are allowed, as in ``numpy.can_cast``.
        subok : bool, default True
            Accepted for compatibility with NumPy; has no effect.
        copy : bool, default True
            Accepted for compatibility with NumPy; has no effect.

        Returns
        -------
        DistArray
            New array that does not change if this one does.

        Raises
        ------
        TypeError
            If ``casting`` does not allow the cast, or servers do not support the dtype.
        """
        check_order(order)
        kind = check_dtype(dtype)
        if casting != "unsafe":
            check_cast(self.dtype, kind, casting)
        with self.session.holders.lock:
            return self.like(build.cast(self.session.graph, self.node, kind))

    def copy(self, order: str = "C") -> Self:
        """Return a new array with the same value.

        Parameters
        ----------
        order : {"C", "F", "A", "K"}, default "C"
            Accepted for compatibility with NumPy; has no effect.

        Returns
        -------
        DistArray
            Array that keeps this value if the original changes.

        Notes
        -----
        Sends no request and copies no memory: values on the servers never change.
        """
        check_order(order)
        with self.session.holders.lock:
            return self.like(self.node)

    def scalar(self, what: str) -> Any:
        """Return the value of a rank-0 array; evaluate it if needed.

        Parameters
        ----------
        what : str
            Name of the operation that needs the value, for counters and error texts.

        Returns
        -------
        numpy.generic
            The value as a NumPy scalar.

        Raises
        ------
        TypeError
            If the array is not of rank 0.

        Notes
        -----
        Counts as an implicit evaluation.
        """
        if not self.node.is_scalar:
            raise TypeError(f"only 0-dimensional arrays can be converted by {what}; use .item()")
        return self.session.evaluate_implicitly(self, what)

    # --- changes ------------------------------------------------------------------------------

    @property
    def write_lock(self) -> hold_lock | threading.RLock:
        """Return the lock to hold while a thread reads the array and replaces its value.

        Returns
        -------
        context manager
            Reentrant lock of this array. Signal handlers wait for it, too.
        """
        if self._write_lock is None:  # most arrays are never changed
            with self.session.turns:
                self._write_lock = self._write_lock or threading.RLock()
        return hold_lock_if_handled(self._write_lock)

    def rebind(self, node: Node) -> Self:
        """Rebind the array to another expression of its own dtype and shape.

        Parameters
        ----------
        node : Node
            The new expression.

        Returns
        -------
        DistArray
            This array.
        """
        self.node = node
        self.session.track(self)
        return self

    def assign(self, value: Handle, name: str = "assign") -> Self:
        """Rebind the array to a value that is cast to its dtype, as ``out=`` and ``+=`` do.

        Parameters
        ----------
        value : DistArray
            New value; its shape must broadcast to the shape of this array.
        name : str, default "assign"
            Name of the operation for error texts.

        Returns
        -------
        DistArray
            This array.

        Raises
        ------
        TypeError
            If NumPy does not allow the cast by the rule "same_kind".
        ValueError
            If the value does not broadcast to the shape of this array.
        """
        if value.dtype is not self.dtype and not np.can_cast(value.dtype, self.dtype, "same_kind"):
            raise TypeError(
                f"Cannot cast {name} output from {value.dtype!r} to {self.dtype!r} with casting "
                f"rule 'same_kind'; write x = x.astype({value.dtype.name!r}) first"
            )
        if value.shape != self.shape and not is_broadcastable(value.shape, self.shape):
            raise ValueError(
                f"non-broadcastable output operand with shape {self.shape} doesn't match "
                f"the broadcast shape {value.shape}"
            )
        graph = self.session.graph
        _ = value.node  # a selection evaluates here, which must not be under the lock
        with self.write_lock, self.session.holders.lock:
            node = build.broadcast_to(graph, value.node, self.node.type)
            return self.rebind(build.cast(graph, node, self.dtype))


def check_order(order: Any) -> None:
    """Raise ``ValueError`` for an unknown memory order. The order has no effect here."""
    if order is None or order == "K":
        return
    known = isinstance(order, str) and order.upper() in {"C", "F", "A", "K"}
    if not known:
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")


def check_cast(
    dtype: np.dtype[Any], to: Any, casting: Any, instead: str = "leave out casting="
) -> None:
    """Raise ``TypeError`` if the rule ``casting`` does not allow a cast of ``dtype`` to ``to``."""
    wanted = np.dtype(to)
    if casting != "unsafe" and not np.can_cast(dtype, wanted, casting):
        raise TypeError(
            f"Cannot cast array data from {dtype!r} to {wanted!r} according to the rule "
            f"{casting!r}; {instead}"
        )


def is_split_by_columns(x: Any) -> bool:
    """Whether ``x`` is a table whose columns are split over the servers, not its rows."""
    return isinstance(x, Handle) and x.is_split_by_columns


def check_split(out: Any, result: Any, name: str) -> None:
    """Raise ``TypeError`` if ``result`` is split by columns and ``out=`` is not."""
    if is_split_by_columns(result) and not is_split_by_columns(out):
        raise TypeError(
            f"numpy.{name}: the result is split by columns, so out= must be split by columns, "
            "too; use the transpose of a table, or leave it out"
        )


def stored_table(x: Any) -> Any:
    """``x`` as servers have it, split by rows: the transpose of one that is split by columns."""
    return x.table if x.is_split_by_columns else x


def is_broadcastable(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of ``shape`` can be stretched to another one."""
    return len(shape) <= len(to) and all(
        extent in (1, wanted) for extent, wanted in zip(shape[::-1], to[::-1], strict=False)
    )


def check_session(session: Evaluator, operand: HasSession, name: str) -> None:
    """``ValueError`` if ``operand``, of the operation ``name``, belongs to another session."""
    if operand.session is not session:
        raise ValueError(
            f"{name}: the operands belong to two sessions ({session!r} and {operand.session!r}); "
            f"pull one with .numpy() and put it with session.array(...)"
        )


def check_not_slice(x: Handle) -> None:
    """``ValueError``, as NumPy's for arrays that are not to be written, if a slice gave ``x``."""
    if x.is_readonly_slice:
        raise ValueError(
            "assignment destination is read-only: a slice is a copy, so the original array would "
            "not change; write to the original, as in x[1:3] = values, or copy the slice first: "
            "x[1:3].copy()"
        )


@contextmanager
def lock_in_order(arrays: Iterable[Handle]) -> Iterator[None]:
    """The write locks of several arrays, always taken in the same order."""
    with ExitStack() as held:
        for array in sorted(arrays, key=id):
            held.enter_context(array.write_lock)
        yield


H = TypeVar("H", bound=Handle)


def make(
    like: H, op: str, operands: Sequence[Any], type: NodeType, params: tuple[Any, ...] = ()
) -> H:
    """Return the array that ``op`` makes of ``operands``, in the session of ``like``; lazy.

    Operands are arrays, ours or NumPy's, which are stored on the client. The result of an op
    ``client.*`` on known values is known.
    """
    _settle(operands)
    session = like.session
    with session.holders.lock:
        graph = session.graph
        args = tuple([node_of(graph, operand) for operand in operands])
        if isinstance(type, ClientType) and (op in ops.TABLE or op.startswith("client.")):
            return like.like(build.on_client(graph, op, args, type, params))
        return like.like(graph.make(op, args, type, params))


def express(like: H, function: Callable[..., Node], *args: Any) -> H:
    """The array of the node ``function(graph, *args)``, which gets the nodes of arrays; lazy."""
    _settle(args)
    session = like.session
    with session.holders.lock:
        nodes = [arg.node if isinstance(arg, Handle) else arg for arg in args]
        return like.like(function(session.graph, *nodes))


def host_array(like: H, values: Any) -> H:
    """A small array that the client keeps, with the values of one of NumPy's."""
    given = np.asarray(values)
    return like.like(like.session.graph.client_value(given, check_dtype(given.dtype)))


def kept_value(x: Any) -> Any:
    """The value of an array that the client has, ours or NumPy's; else None."""
    if isinstance(x, Handle):
        return None if x.selects or not x.node.on_client else x.node.value
    return x if isinstance(x, np.ndarray) else None


def node_of(graph: Graph, operand: Any) -> Node:
    """The node of an array; of NumPy's one that the client keeps."""
    if isinstance(operand, Handle):
        return operand.node
    if isinstance(operand, np.generic):
        return graph.constant(operand, operand.dtype)
    values = np.asarray(operand)
    return graph.client_value(values, check_dtype(values.dtype))


def _settle(operands: Sequence[Any]) -> None:
    for operand in operands:
        if isinstance(operand, Handle) and operand.selects:
            _ = operand.node
