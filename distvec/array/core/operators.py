"""Elementwise operations on arrays, and Python's operators made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

from distvec.array.core.handle import Handle, check_session, is_broadcastable
from distvec.array.core.on_client import elementwise_of_known
from distvec.array.core.shapes import filled
from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.node import Node
from ps_backend.program.spaces import DenseSpace


def raise_if_any(wrong: Any, error: type[Exception], message: str) -> None:
    """``error`` if any of ``wrong``, booleans, is true: an implicit evaluation, one message."""
    found = np.any(wrong)
    if found.scalar(message) if hasattr(found, "scalar") else found:
        raise error(message)


H = TypeVar("H", bound=Handle)


class Deferred(TypeError):
    """The class of the other operand defines the operation."""


_FAST_POWERS = {1: "positive", 2: "square", 0.5: "sqrt"}


def elementwise(like: H, name: str, *operands: Any) -> H:
    """The lazy result of op ``name``, in the session of ``like``, one of its operands.

    Costs no message. Errors as NumPy's for the same operands.
    """
    if not like._defers and like.node.on_client:
        found = elementwise_of_known(like, name, operands)
        if found is not None:
            return found
    session = like.session
    if session.overdue:
        session.flush_overdue()
    if name not in _CHECKED and not like._defers:  # most are of such arrays, and numbers
        kind = type(like)
        for operand in operands:
            known = type(operand)
            if known in _NUMBERS:
                continue
            if known is not kind and (not isinstance(operand, Handle) or operand._defers):
                break
            if operand.session is not session:
                break
        else:
            with session.holders.lock:
                nodes = [one if type(one) in _NUMBERS else one.node for one in operands]
                return like.like(build.elementwise(session.graph, name, nodes))
    if name in _EQUALITIES and any(map(_is_no_number, operands)):
        return like.like(filled(session.graph, like.shape, name == "not_equal", np.bool_))
    on_client = False
    for operand in operands:
        if isinstance(operand, Arithmetic):
            if operand._defers:
                result: H = operand.apply_op(name, operands)
                return result
        elif isinstance(operand, np.ndarray | list | tuple):
            on_client = True
    if on_client:
        operands = tuple([upload_beside(like, name, one) for one in operands])
    if name == "pow":
        _check_exponents(*operands)
    with session.holders.lock:
        given: list[Node | int | float] = []
        for operand in operands:
            if isinstance(operand, Handle) and operand.session is session:
                given.append(operand.node)
            else:
                given.append(operand_node(like, name, operand))
        return like.like(build.elementwise(session.graph, name, given))


def _check_exponents(base: Any, exponents: Any) -> None:
    """``ValueError``, as NumPy's, for integers to powers of which some are negative.

    An implicit evaluation, one message, unless the client knows the exponents.
    """
    is_signed = isinstance(exponents, Arithmetic) and exponents.dtype.kind == "i"
    if not is_signed or np.result_type(getattr(base, "dtype", type(base))).kind not in "biu":
        return
    negative = elementwise(exponents, "less", exponents, 0)
    raise_if_any(negative, ValueError, build.NEGATIVE_POWER)


_EQUALITIES = ("equal", "not_equal")
_CHECKED = frozenset((*_EQUALITIES, "pow"))
"""Operations whose operands are looked at first."""
_NUMBERS = (float, int)
_NO_NUMBERS = (str, bytes, dict, set, frozenset, slice)


def _is_no_number(operand: Any) -> bool:
    """Whether an operand is equal to no number, as None: as in NumPy, that is no error."""
    if isinstance(operand, Handle | int | float | np.generic | np.ndarray | list | tuple):
        return False
    equality: Any = type(operand).__eq__
    by_identity = equality is object.__eq__ and not hasattr(operand, "__array__")
    return by_identity or isinstance(operand, _NO_NUMBERS)


def operand_node(like: Handle, name: str, operand: Any) -> Node | int | float:
    """A node, or a Python scalar (whose dtype is weak)."""
    if isinstance(operand, Handle):
        check_session(like.session, operand, name)
        return operand.node
    if isinstance(operand, np.generic) or (isinstance(operand, np.ndarray) and operand.ndim == 0):
        value: Any = operand[()]  # type: ignore[index]
        return like.session.graph.constant(value, check_dtype(value.dtype))
    if isinstance(operand, bool):
        return like.session.graph.constant(operand, np.dtype(np.bool_))
    if isinstance(operand, int | float):
        return operand if type(operand) in (int, float) else float(operand)
    if isinstance(operand, list | tuple) and (like.ndim == 2 or like.node.on_client):
        operand = np.asarray(operand)
    if isinstance(operand, np.ndarray) and _travels(like, operand):
        return like.session.graph.client_value(operand, check_dtype(operand.dtype))
    if isinstance(operand, np.ndarray | list | tuple):
        values = np.asarray(operand)
        if values.size == 1 and values.ndim <= like.ndim:
            return like.session.graph.constant(values.item(), check_dtype(values.dtype))
        if not is_broadcastable(values.shape, like.shape):
            raise ValueError(
                f"operands could not be broadcast together with shapes {like.shape} {values.shape}"
            )
        raise TypeError(
            f"{name}: a {type(operand).__name__} of {np.size(operand)} elements is on the client; "
            f"put it on the servers first: session.array(...)"
        )
    if hasattr(operand, "__array_ufunc__"):
        raise Deferred(f"{name}: unsupported operand of type {type(operand).__name__}")
    raise TypeError(f"{name}: unsupported operand of type {type(operand).__name__}")


def as_operand(x: H, operand: Any, name: str) -> H:
    """``operand`` as an array; one of the client's, if it is small enough to stand beside ``x``."""
    if isinstance(operand, Arithmetic):
        check_session(x.session, operand, name)
        return operand  # type: ignore[return-value]
    given = upload_beside(x, name, operand)
    if isinstance(given, Arithmetic):
        return given  # type: ignore[return-value]
    given = np.asarray(given) if isinstance(given, list | tuple) else given
    node = operand_node(x, name, given)
    if not isinstance(node, Node):
        node = x.session.graph.constant(node, np.result_type(given))
    return x.like(node)


def upload_beside(like: Handle, name: str, operand: Any, *, rows: bool = False) -> Any:
    """``operand``; an array of the client with a row for each row of ``like``, on the servers.

    ``rows``: also a table beside a vector. Eager then: one request per server. ``ValueError`` above
    the session's ``upload_limit``.
    """
    if like.node.on_client or not isinstance(operand, np.ndarray | list | tuple):
        return operand
    if not isinstance(like.node.type.space, DenseSpace):
        return operand
    values = np.asarray(operand)
    shape = like.node.type.shape
    has_rank = values.ndim == len(shape) or (rows and values.ndim == 2)
    if like.shape != shape or not has_rank or values.shape[0] != shape[0]:
        return operand
    check_dtype(values.dtype)
    like.session.upload_implicitly(values.nbytes, f"{name} with an array of the client")
    array = like.session._put(values)
    like.session.uploads.add(array.node)
    return array


def _travels(like: Handle, operand: np.ndarray) -> bool:
    """Whether an operand beside ``like`` goes along with the program: a row of a table."""
    if like.ndim < 2 and not like.node.on_client:
        return False
    return operand.ndim < 2 or operand.shape[0] == 1 or like.node.on_client


def _binary(name: str) -> Callable[[H, Any], H]:
    """``x OP other``."""

    def operator(self: H, other: Any) -> Any:
        try:
            return elementwise(self, name, self, other)
        except Deferred:
            return NotImplemented

    return operator


def _make_reflected(name: str) -> Callable[[H, Any], H]:
    """``other OP x``."""

    def operator(self: H, other: Any) -> H:
        return elementwise(self, name, other, self)

    return operator


def _in_place(name: str) -> Callable[[H, Any], H]:
    """``x OP= other``: the handle stands for the result, in its own dtype."""

    def operator(self: H, other: Any) -> H:
        if isinstance(other, Arithmetic) and other.is_split_by_columns:
            other = self.session._put(other)
        with self.write_lock:
            return _update(self, elementwise(self, name, self, other), name)

    return operator


def _update(x: H, result: H, name: str) -> H:
    """What ``x OP= other`` leaves in x; a scalar never changes, as in NumPy: the name moves on."""
    return x.assign(result, name) if x.ndim else result


def _unary(name: str) -> Callable[[H], H]:
    """``OP x``."""

    def operator(self: H) -> H:
        return elementwise(self, name, self)

    return operator


class Arithmetic(Handle):
    """A handle with Python's operators, which cost no message, and conversions, which evaluate."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # == is elementwise, as in NumPy

    __add__, __radd__, __iadd__ = _binary("add"), _make_reflected("add"), _in_place("add")
    __sub__, __rsub__ = _binary("subtract"), _make_reflected("subtract")
    __isub__ = _in_place("subtract")
    __mul__, __rmul__ = _binary("multiply"), _make_reflected("multiply")
    __imul__ = _in_place("multiply")
    __truediv__, __rtruediv__ = _binary("divide"), _make_reflected("divide")
    __itruediv__ = _in_place("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _make_reflected("floor_divide")
    __ifloordiv__ = _in_place("floor_divide")
    __mod__, __rmod__ = _binary("remainder"), _make_reflected("remainder")
    __imod__ = _in_place("remainder")
    __rpow__ = _make_reflected("pow")
    __neg__, __pos__, __abs__ = _unary("negative"), _unary("positive"), _unary("abs")
    __invert__ = _unary("bitwise_invert")
    __and__, __rand__ = _binary("bitwise_and"), _make_reflected("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or"), _make_reflected("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor"), _make_reflected("bitwise_xor")
    __lshift__, __rlshift__ = _binary("bitwise_left_shift"), _make_reflected("bitwise_left_shift")
    __rshift__, __rrshift__ = _binary("bitwise_right_shift"), _make_reflected("bitwise_right_shift")
    __iand__, __ior__ = _in_place("bitwise_and"), _in_place("bitwise_or")
    __ixor__ = _in_place("bitwise_xor")
    __ilshift__, __irshift__ = _in_place("bitwise_left_shift"), _in_place("bitwise_right_shift")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]

    # --- overridden by selections, and by tables that are split by columns --------------------

    def materialized(self) -> Self:
        """Return the array split by rows, with its length known.

        Returns
        -------
        DistArray
            The array itself. A boolean-mask selection is compacted, which may need an evaluation; a
            transposed table is redistributed by rows.
        """
        return self

    def axis_length(self, axis: int) -> int | Self:
        """Return the length of an axis.

        Parameters
        ----------
        axis : int
            Axis of the array.

        Returns
        -------
        int or DistArray
            The length; a lazy scalar for axis 0 of a boolean-mask selection.
        """
        return self.shape[axis]

    def fill_unselected(self, value: float) -> Any:
        """Return an array as long as the mask of a selection, with ``value`` elsewhere.

        Parameters
        ----------
        value : number
            Value of elements that the mask leaves out.

        Returns
        -------
        DistArray
            The filled array; the array itself if it is not a boolean-mask selection.
        """
        return self

    def aligned_operands(self, other: Arithmetic) -> tuple[Any, Any]:
        """Return this array and another one in the form that an inner product needs.

        Parameters
        ----------
        other : DistArray
            The other operand.

        Returns
        -------
        tuple of DistArray
            Both operands; two selections by one mask become arrays of the mask's length.
        """
        return self, other

    def apply_op(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Apply an elementwise operation for an array class that defines it differently.

        Parameters
        ----------
        name : str
            Name of the operation in the op table.
        operands : tuple
            All operands; this array is one of them.

        Returns
        -------
        DistArray
            The result; lazy.
        """
        raise NotImplementedError

    def reduce(self, op: str, axis: int | None, dtype: np.dtype[Any]) -> Any:
        """Reduce a boolean-mask selection.

        Parameters
        ----------
        op : str
            Name of the reduction in its table.
        axis : int or None
            Axis to reduce; None reduces all elements.
        dtype : numpy.dtype
            Dtype of the result.

        Returns
        -------
        DistArray
            The result; lazy.
        """
        raise NotImplementedError

    # --- operators ----------------------------------------------------------------------------

    def __divmod__(self, other: Any) -> tuple[Self, Self]:
        return elementwise(self, "floor_divide", self, other), elementwise(
            self, "remainder", self, other
        )

    def __rdivmod__(self, other: Any) -> tuple[Self, Self]:
        return elementwise(self, "floor_divide", other, self), elementwise(
            self, "remainder", other, self
        )

    def __pow__(self, exponent: Any) -> Self:
        # As NumPy's operator (not its function), for the exponents that have an exact shortcut.
        if type(exponent) in (int, float) and exponent in _FAST_POWERS:
            is_square_of_number = exponent == 2 and type(exponent) is int and self.dtype.kind != "b"
            if self.dtype.kind == "f" or is_square_of_number:
                return elementwise(self, _FAST_POWERS[exponent], self)
        return elementwise(self, "pow", self, exponent)

    def __ipow__(self, exponent: Any) -> Self:
        with self.write_lock:
            result: Self = self**exponent
            return _update(self, result, "pow")

    def __float__(self) -> float:
        return float(self.scalar("float()"))

    def __int__(self) -> int:
        return int(self.scalar("int()"))

    def __complex__(self) -> complex:
        return complex(self.scalar("complex()"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"only integer arrays can be converted to an index, got {self.dtype}")
        return int(self.scalar("index()"))


A = TypeVar("A", bound=Arithmetic)


def as_array(name: str, x: H) -> H:
    """``x``, which must be an array on the servers."""
    if not isinstance(x, Arithmetic):
        raise TypeError(
            f"{name}: needs an array on the servers, got {type(x).__name__}; "
            f"use numpy.{name}, or put it there with session.array(...)"
        )
    return x
