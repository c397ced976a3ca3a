"""What brings values to the client: asked for, or because ordinary Python needs them.

Whoever reads a buffer has an array of their own meanwhile, so that no other thread's program takes
over its memory: what is read is the array's value of one moment.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.array.creation import reshape
from distvec.array.handle import Handle
from distvec.diagnostics.profile import measured
from distvec.graph.node import Buffer

H = TypeVar("H", bound=Handle)

_CPU = 1  # as DLPack numbers kinds of devices


def persist(x: H) -> H:
    """Compute the array, keep it on the servers, and return it. One message per program."""
    x.session.evaluate(x)
    return x


def buffer_of(x: Handle) -> Buffer:
    """The buffer that holds the elements; evaluates the array first if need be.

    ``TypeError`` for a number or a small array, which the client keeps. The buffer is there as long
    as an array stands for it: ``x.copy()``, where others may change ``x``.
    """
    (node,) = x.session.compute(x)
    if not isinstance(node.value, Buffer):
        what = f"an array of shape {x.shape} that the client keeps has no buffer"
        if x.ndim:
            raise TypeError(f"{what}; put it on the servers: session.array(x).buffer")
        raise TypeError("a rank-0 array is a scalar of the client and has no buffer")
    return node.value


def numpy(x: Handle) -> npt.NDArray[Any]:
    """The values, pulled to the client: evaluation, then one message per server."""
    held = x.copy()
    (node,) = x.session.compute(held)
    if node.on_client:
        return np.array(node.value)
    buffer: Buffer = node.value
    with measured(x.session.counters):
        return x.session.client.read(buffer.id, buffer.type)


def item(x: Handle, *args: Any) -> Any:
    """One element as a Python scalar: that at an index, of a table one index or two; or the only
    one. Evaluation, and a message to the server that holds it.
    """
    if not args:
        if x.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return numpy(x).reshape(()).item()
    index = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
    vector = reshape(x, (x.size,)) if len(index) == 1 < x.ndim else x
    if len(index) != vector.ndim:
        raise ValueError("incorrect number of indices for array")
    return vector[index].item()  # type: ignore[index]


def tolist(x: Handle) -> Any:
    """The values as a list of Python scalars, or one of them; they are pulled as by ``numpy``."""
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
    """What ``np.asarray(x)`` gets; for a vector an implicit transfer of all of it."""
    if copy is False:
        raise ValueError("values on the servers cannot become a NumPy array without a copy")
    if dtype is not None and np.dtype(dtype).hasobject:
        raise TypeError(
            "elements as Python objects, for a function of the client that is called for each, as "
            "by numpy.vectorize; write it with NumPy's functions, or pull the values: x.numpy()"
        )
    values = _transferred(x, "np.asarray()")
    return values if dtype is None else values.astype(dtype, copy=False)


def as_bytes(x: Handle) -> bytes:
    """``bytes(x)``: the memory of ``np.asarray(x)``, or as many zeros as a rank-0 integer says.

    An implicit transfer. (``bytearray(x)`` goes by the elements: write ``bytearray(x.numpy())``.)
    """
    return bytes(_transferred(x, "bytes()"))


def _transferred(x: Handle, what: str) -> npt.NDArray[Any]:
    x.session.transfer_implicitly(x.node, what, x.size)
    x.session.evaluate_implicitly(x, what)
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
    return _transferred(x, "__dlpack__()").__dlpack__(max_version=max_version)


def dlpack_device(x: Handle) -> tuple[int, int]:
    """The kind and number of the device that ``__dlpack__`` exports to: the client's memory."""
    return _CPU, 0
