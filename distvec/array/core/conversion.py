"""Conversions that bring values to the client, on request or because ordinary Python needs them.

The code that reads a buffer holds an array of its own meanwhile. So no program of another thread
takes over the memory, and the values are those of one moment.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import Handle, kept_value, stored_table
from distvec.array.core.shapes import reshape
from distvec.diagnostics.profile import measured
from distvec.graph.node import Buffer

H = TypeVar("H", bound=Handle)

_CPU = 1  # as DLPack numbers kinds of devices


def persist(x: H) -> H:
    """Evaluate the array and keep its value on the servers.

    Parameters
    ----------
    x : DistArray
        Array to evaluate.

    Returns
    -------
    DistArray
        The same array.

    See Also
    --------
    distvec.evaluate : Evaluate several arrays together.

    Notes
    -----
    One request per server and program, usually one. An evaluated array costs no request.

    Examples
    --------
    >>> x = ps.array([1.0, 2.0])
    >>> y = (x * x).persist()
    >>> y.numpy()
    array([1., 4.])
    """
    x.session.evaluate(stored_table(x))
    return x


def buffer_of(x: Handle) -> Buffer:
    """Return the buffer that holds the elements; evaluate the array first if needed.

    A small array of the client moves to the servers; ``TypeError`` for a number. The buffer lives
    as long as an array refers to it: take ``x.copy()`` if others can change ``x``.
    """
    if x.node.on_client:
        x.move_to_servers()
    (node,) = x.session.compute(x)
    if not isinstance(node.value, Buffer):
        raise TypeError(
            "a rank-0 array is stored on the client and has no buffer; read it: x.item()"
        )
    return node.value


def numpy(x: Handle) -> npt.NDArray[Any]:
    """Pull all values to the client.

    Parameters
    ----------
    x : DistArray
        Array to read. It is evaluated if needed.

    Returns
    -------
    numpy.ndarray
        Copy of the values, of the same shape and dtype.

    See Also
    --------
    distvec.DistArray.blocks : Pull a large array in batches.

    Notes
    -----
    The evaluation, then one request to each server that holds elements.

    Examples
    --------
    >>> ps.array([1.0, 2.0]).numpy()
    array([1., 2.])
    """
    kept = kept_value(x)
    if kept is not None:
        return np.array(kept)
    held = stored_table(x.copy())
    (node,) = x.session.compute(held)
    value: Any = node.value
    if node.on_client:
        found = np.array(value)
    else:
        with measured(x.session.counters):
            found = x.session.client.read(value.id, value.type)
    return found.T if x.is_split_by_columns else found


def item(x: Handle, *args: int | tuple[int, ...]) -> bool | int | float:
    """Return one element as a Python scalar.

    Parameters
    ----------
    x : DistArray
        Array to read. It is evaluated if needed.
    *args : int or tuple of int
        Index of the element: one integer into the flattened array, or one integer for each axis.
        Without arguments, the array must have exactly one element.

    Returns
    -------
    bool, int or float
        The element.

    Raises
    ------
    ValueError
        If the array has several elements and no index is given, or the index has the wrong rank.
    IndexError
        If the index is out of bounds.

    Notes
    -----
    The evaluation, then one request to the server that holds the element.

    Examples
    --------
    >>> ps.array([[1, 2], [3, 4]]).item(1, 0)
    3
    """
    if not args:
        if x.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return numpy(x).reshape(()).item()  # type: ignore[no-any-return]
    index: Any = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
    if len(index) == 1 and x.is_split_by_columns:
        index = divmod(range(x.size)[index[0]], x.shape[1])
    vector = reshape(x, (x.size,)) if len(index) == 1 < x.ndim else x
    if len(index) != vector.ndim:
        raise ValueError("incorrect number of indices for array")
    return vector[index].item()  # type: ignore[index, no-any-return]


def tolist(x: Handle) -> Any:
    """Pull all values to the client as Python scalars in a list.

    Parameters
    ----------
    x : DistArray
        Array to read. It is evaluated if needed.

    Returns
    -------
    list or scalar
        Nested lists like the shape of the array; one scalar for rank 0.

    Notes
    -----
    The same requests as ``numpy``.

    Examples
    --------
    >>> ps.array([[1, 2], [3, 4]]).tolist()
    [[1, 2], [3, 4]]
    """
    return numpy(x).tolist()


def truth(x: Handle) -> bool:
    """``bool(x)``; ``ValueError`` unless there is one element."""
    if x.size == 1 and x.ndim:
        return truth(reshape(x, ()))
    if x.ndim:
        raise ValueError(
            "The truth value of an array with more than one element is ambiguous. "
            "Use a.any() or a.all()"
        )
    return bool(x.scalar("bool()"))


def as_array(x: Handle, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
    """Return the values for ``np.asarray(x)``; an implicit transfer of all elements of a vector."""
    if copy is False:
        raise ValueError("values on the servers cannot become a NumPy array without a copy")
    if dtype is not None and np.dtype(dtype).hasobject:
        raise TypeError(
            "dtype=object is not supported; for a function that is called for each element, as by "
            "numpy.vectorize, pull the values: x.numpy()"
        )
    values = _transfer(x, "np.asarray()")
    return values if dtype is None else values.astype(dtype, copy=False)


def as_bytes(x: Handle) -> bytes:
    """``bytes(x)``: the memory of ``np.asarray(x)``, or as many zeros as a rank-0 integer says.

    An implicit transfer. (``bytearray(x)`` goes by the elements: write ``bytearray(x.numpy())``.)
    """
    return bytes(_transfer(x, "bytes()"))


def _transfer(x: Handle, what: str) -> npt.NDArray[Any]:
    if kept_value(x) is not None:
        return numpy(x)
    stored = stored_table(x)
    x.session.transfer_implicitly(stored.node, what, x.size)
    x.session.evaluate_implicitly(stored, what)
    return numpy(x)


def dlpack(
    x: Handle,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A copy of the values for another library of this process; an implicit transfer of all.

    ``BufferError`` for a device that is not ``x.__dlpack_device__()``, and with ``copy=False``.
    """
    if copy is False:
        raise BufferError("values on the servers cannot be exported without a copy")
    if stream is not None or (dl_device is not None and tuple(dl_device) != dlpack_device(x)):
        raise BufferError(
            f"values are exported to the memory of this process, device {dlpack_device(x)}, "
            f"got dl_device={dl_device!r} and stream={stream!r}"
        )
    return _transfer(x, "__dlpack__()").__dlpack__(max_version=max_version)


def dlpack_device(x: Handle) -> tuple[int, int]:
    """The kind and number of the device that ``__dlpack__`` exports to: the client's memory."""
    return _CPU, 0


MOST_ITERATED = 10_000
"""So many elements a ``for`` loop over an array may bring."""

_BATCH_BYTES = 8 << 20


def iterate(x: Handle) -> Iterator[Any]:
    """``iter(x)``: NumPy's scalars, of a table its rows; all brought at once, for the first one.

    Evaluation then if need be, and an implicit transfer. ``TypeError`` for more than
    ``MOST_ITERATED`` elements, and as NumPy's for rank 0.
    """
    if not x.ndim:
        raise TypeError("iteration over a 0-d array")
    if x.size > MOST_ITERATED:
        raise TypeError(
            f"cannot iterate over {x.size} elements one by one, at most {MOST_ITERATED}; write "
            f"'for block in x.blocks()' for batches, or x.numpy() for all values"
        )
    return _elements(x.copy())


def _elements(held: Handle) -> Iterator[Any]:
    held.session.transfer_implicitly(held.node, "iteration", held.size)
    held.session.evaluate_implicitly(held, "iteration")
    yield from numpy(held)


def blocks(x: Handle, size: int | None = None) -> Iterator[npt.NDArray[Any]]:
    """Pull the elements of a vector, or the rows of a table, in batches.

    Parameters
    ----------
    x : DistArray
        Vector or table. It is evaluated when the first batch is read.
    size : int, optional
        Number of elements or rows per batch. The default makes batches of about 8 MiB.

    Returns
    -------
    iterator of numpy.ndarray
        Batches in the order of the index; the last one can be smaller.

    Raises
    ------
    TypeError
        If the array has rank 0.
    ValueError
        If ``size`` is less than 1.

    Notes
    -----
    All batches show the value of the array at the time of the call. Each batch costs one request to
    each server that holds some of it.

    Examples
    --------
    >>> for block in ps.arange(5).blocks(2):
    ...     print(block)
    [0 1]
    [2 3]
    [4]
    """
    if not x.ndim:
        raise TypeError(
            "blocks: needs a vector or a table, got a rank-0 array; read it with x.item()"
        )
    if size is not None and operator.index(size) < 1:
        raise ValueError(f"blocks: size must be 1 or more, got {size}")
    row_bytes = math.prod(x.shape[1:]) * x.dtype.itemsize
    return _batches(x.copy(), size or max(1, _BATCH_BYTES // row_bytes))


def _batches(held: Handle, size: int) -> Iterator[npt.NDArray[Any]]:
    length, client = len(held), held.session.client
    if held.node.on_client:
        values = numpy(held)
        yield from (values[start : start + size] for start in range(0, length, size))
        return
    buffer = buffer_of(held)
    for start in range(0, length, size):
        with measured(held.session.counters):
            batch = client.read_rows(buffer.id, buffer.type, start, min(start + size, length))
        yield batch


def contains(x: Handle, value: Any) -> bool:
    """``value in x``: whether some element is equal; one message a server."""
    return bool(np.any(x == value))
