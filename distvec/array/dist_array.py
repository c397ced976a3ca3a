"""``DistArray``: what a user holds. A handle on a node; operators make new nodes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from distvec.array import (
    changing,
    hints,
    reductions,
    values,
)
from distvec.array import (
    indexing as elements,
)
from distvec.array import (
    numpy_protocols as dispatch,
)
from distvec.array.operators import binary, in_place, reflected, unary, updated
from distvec.diagnostics.draw import Explanation, draw
from distvec.graph import build, dtypes
from distvec.graph.expr import Buffer, Node
from distvec.planner.plan import Template

if TYPE_CHECKING:
    from distvec.array.namespace import Namespace
    from distvec.session import Session
    from ps_backend.program.space import DenseSpace


_FAST_POWERS = {1: "positive", 2: "square", 0.5: "sqrt"}


class DistArray:
    """An array on the servers: dtype, shape, space; rank 0 (a lazy scalar) or 1.

    Operators, NumPy functions and the functions of ``distvec`` build a graph and cost no message.
    ``float()``, ``bool()``, ``int()``, ``.item()``, ``np.asarray()``, ``repr()``, ``.numpy()``,
    ``distvec.evaluate()`` and ``.persist()`` evaluate it, with whatever else is pending and reads
    nothing new. In-place operators and ``out=`` make the handle stand for another value.
    """

    __slots__ = ("__weakref__", "_moving", "_node", "_turn", "session")
    __hash__ = None  # type: ignore[assignment]  # == is elementwise, as in NumPy

    def __init__(self, session: Session, node: Node) -> None:
        self.session = session
        self._node = node
        self._moving: threading.Lock | None = None
        self._turn: threading.RLock | None = None
        if not node.known:
            session.note_pending(self)

    # --- what it is ---------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The expression this array stands for."""
        node = self._node  # first: who gives its memory away after that sees that it is held
        while (moving := self._moving) is not None:
            with moving:  # until another thread has changed the array
                node = self._node
        return node

    @property
    def pending_node(self) -> Node | None:
        """The expression if it has no value yet. Never waits."""
        node = self._node
        return None if node.known else node

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return self._node.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """``()`` or ``(n,)``."""
        return self._node.shape

    @property
    def ndim(self) -> int:
        """0 or 1."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._node.shape[0] if self._node.shape else 1

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take on all servers together."""
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> DistArray:
        """The array itself: its rank is below 2."""
        return self

    @property
    def device(self) -> str:
        """Where the elements are, for the array API."""
        return "servers"

    @property
    def space(self) -> DenseSpace:
        """The index set that the vector is defined on. ``TypeError`` for a scalar."""
        if self._node.space is None:
            raise TypeError("a rank-0 array is a scalar of the client and lives in no space")
        return self._node.space

    def __len__(self) -> int:
        if not self._node.shape:
            raise TypeError("len() of unsized object")
        return self._node.shape[0]

    # --- operators ----------------------------------------------------------------------------

    __add__, __radd__, __iadd__ = binary("add"), reflected("add"), in_place("add")
    __sub__, __rsub__ = binary("subtract"), reflected("subtract")
    __isub__ = in_place("subtract")
    __mul__, __rmul__ = binary("multiply"), reflected("multiply")
    __imul__ = in_place("multiply")
    __truediv__, __rtruediv__ = binary("divide"), reflected("divide")
    __itruediv__ = in_place("divide")
    __floordiv__, __rfloordiv__ = binary("floor_divide"), reflected("floor_divide")
    __ifloordiv__ = in_place("floor_divide")
    __mod__, __rmod__, __imod__ = (
        binary("remainder"),
        reflected("remainder"),
        in_place("remainder"),
    )
    __rpow__ = reflected("pow")
    __neg__, __pos__, __abs__ = unary("negative"), unary("positive"), unary("abs")
    # These commute, so the reflected ones are the same.
    __and__, __rand__ = binary("bitwise_and"), reflected("bitwise_and")
    __or__, __ror__ = binary("bitwise_or"), reflected("bitwise_or")
    __xor__, __rxor__ = binary("bitwise_xor"), reflected("bitwise_xor")
    __lshift__, __rlshift__ = binary("bitwise_left_shift"), reflected("bitwise_left_shift")
    __rshift__, __rrshift__ = binary("bitwise_right_shift"), reflected("bitwise_right_shift")
    __iand__, __ior__, __ixor__ = map(in_place, ("bitwise_and", "bitwise_or", "bitwise_xor"))
    __ilshift__, __irshift__ = in_place("bitwise_left_shift"), in_place("bitwise_right_shift")
    __lt__, __le__ = binary("less"), binary("less_equal")
    __gt__, __ge__ = binary("greater"), binary("greater_equal")
    __eq__ = binary("equal")  # type: ignore[assignment]
    __ne__ = binary("not_equal")  # type: ignore[assignment]

    def __invert__(self) -> DistArray:
        return build.elementwise(self.session, "bitwise_invert", self)

    def __divmod__(self, other: Any) -> tuple[DistArray, DistArray]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[DistArray, DistArray]:
        return other // self, other % self

    def __pow__(self, exponent: Any) -> DistArray:
        # As NumPy's operator (not its function), for the exponents that have an exact shortcut.
        if type(exponent) in (int, float) and exponent in _FAST_POWERS:
            is_square_of_number = exponent == 2 and type(exponent) is int and self.dtype.kind != "b"
            if self.dtype.kind == "f" or is_square_of_number:
                return build.elementwise(self.session, _FAST_POWERS[exponent], self)
        return build.elementwise(self.session, "pow", self, exponent)

    def __ipow__(self, exponent: Any) -> DistArray:
        with self.turn:
            return updated(self, self**exponent, "pow")

    def __matmul__(self, other: Any) -> DistArray:
        return self._product(other, reflected=False)

    def __rmatmul__(self, other: Any) -> DistArray:
        return self._product(other, reflected=True)

    def _product(self, other: Any, *, reflected: bool) -> DistArray:
        if not isinstance(other, DistArray):
            raise TypeError(
                f"@ needs two arrays on the servers, got {type(other).__name__}; "
                f"put it there with session.array(...)"
            )
        if self.ndim == 0 or other.ndim == 0:
            raise ValueError("@ needs two vectors; multiply by a scalar with *")
        return reductions.dot(other, self) if reflected else reductions.dot(self, other)

    @property
    def turn(self) -> threading.RLock:
        """Held by the thread that changes the array, from reading the old value to the new one."""
        return self._turn or changing.first_turn(self)

    def become(self, node: Node) -> DistArray:
        """Let this handle stand for ``node``, of its own dtype and shape. Returns the array."""
        self._node = node
        if not node.known:
            self.session.note_pending(self)
        return self

    def assign(self, value: DistArray, name: str = "assign") -> DistArray:
        """Let this handle stand for ``value`` cast to its own dtype, as ``out=`` and ``+=`` do.

        ``TypeError`` where NumPy refuses the cast, ``ValueError`` where the shape would change.
        """
        if not np.can_cast(value.dtype, self.dtype, "same_kind"):
            raise TypeError(
                f"Cannot cast {name} output from {value.dtype!r} to {self.dtype!r} with casting "
                f"rule 'same_kind'; write x = x.astype({value.dtype.name!r}) first"
            )
        node = value.node
        if value.shape != self.shape:
            if value.ndim and not (value.shape == (1,) and self.ndim):
                raise ValueError(
                    f"non-broadcastable output operand with shape {self.shape} doesn't match "
                    f"the broadcast shape {value.shape}"
                )
            scalar = build.scalar_of(self.session, node) if value.ndim else node
            node = self.session.graph.make("fill", (scalar,), value.dtype, self._node.space)
        with self.turn:
            return self.become(build.cast(self.session, node, self.dtype))

    # --- evaluation ---------------------------------------------------------------------------

    def persist(self) -> DistArray:
        """Compute the array, keep it on the servers, and return it. One message per program."""
        self.session.evaluate(self)
        return self

    numpy, item = values.numpy, values.item

    @property
    def buffer(self) -> Buffer:
        """The buffer that holds the vector; evaluates it first if need be.

        Hold it as long as its id is in use: what nobody holds is freed, or written over.
        """
        node = self.node
        self.session.compute([node])
        if not isinstance(node.value, Buffer):
            raise TypeError("a rank-0 array is a scalar of the client and has no buffer")
        return node.value

    @property
    def buffer_id(self) -> int:
        """Id of the buffer that holds the vector; evaluates it first if need be."""
        return self.buffer.id

    def __float__(self) -> float:
        return float(values.scalar(self, "float()"))

    def __int__(self) -> int:
        return int(values.scalar(self, "int()"))

    def __index__(self) -> int:
        if self.dtype.kind != "i":
            raise TypeError(f"only integer arrays can be converted to an index, got {self.dtype}")
        return int(values.scalar(self, "index()"))

    __bool__, __array__ = values.truth, values.as_array

    def __format__(self, spec: str) -> str:
        return format(values.scalar(self, "format()"), spec) if self.ndim == 0 else str(self)

    def __str__(self) -> str:
        return values.inner_text(self, "str()")

    def __repr__(self) -> str:
        inner = values.inner_text(self, "repr()")
        return f"DistArray({inner}, dtype={self.dtype}, shape={self.shape})"

    def explain(self, format: str = "text") -> str:
        """The programs that would compute this array now, or those that computed it.

        ``format``: ``"text"``; ``"dot"``, for Graphviz; or ``"svg"``, a drawing by Graphviz'
        command ``dot``, which must be installed for it.
        """
        known = self._node.known
        template: Template | None = self._node.origin if known else self.session.plan(self)
        if format != "text":
            return Explanation(draw(template or Template([], []), format))
        if template is None:
            return Explanation("nothing to run: the values were put here, not computed")
        return Explanation(f"computed by {template}" if known else str(template))

    # --- single elements ----------------------------------------------------------------------

    pull, push = elements.pull, elements.push

    def __getitem__(self, key: Any) -> DistArray:
        if key is Ellipsis or (isinstance(key, tuple) and not key) or self._is_all(key):
            return self
        raise TypeError(
            "indexing would pull single elements; use x.pull([3, 5]) for those, "
            "distvec.where(mask, x, y) for masks"
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is Ellipsis or self._is_all(key):
            new = value if isinstance(value, DistArray) else self.session.full((), value)
            self.assign(new.astype(self.dtype))  # item assignment casts as it must, as in NumPy
            return
        if isinstance(key, DistArray) and key.dtype == np.bool_ and key.shape == self.shape:
            new = value if isinstance(value, DistArray) else self.session.full((), value)
            if new.ndim == 0:
                given = new.astype(self.dtype)
                with self.turn:
                    self.assign(build.elementwise(self.session, "where", key, given, self))
                return
        raise TypeError(
            "item assignment is not supported; use x.push(indices, values) to add at indices, "
            "x[mask] = 0 or x = distvec.where(mask, y, x) for masks, x[:] = y for all"
        )

    def _is_all(self, key: Any) -> bool:
        return isinstance(key, slice) and key == slice(None) and self.ndim == 1

    def __iter__(self) -> Any:
        raise TypeError("iteration would pull the elements one by one; use x.numpy()")

    # --- methods as NumPy's -------------------------------------------------------------------

    def astype(self, dtype: Any, copy: bool = True) -> DistArray:
        """The array in another dtype; lazy."""
        kind = dtypes.check_dtype(dtype)
        return self.session.wrap(build.cast(self.session, self._node, kind))

    def copy(self) -> DistArray:
        """Another handle on the same value: buffers never change, so nothing is copied."""
        return self.session.wrap(self._node)

    __copy__ = copy

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

    def dot(self, other: DistArray) -> DistArray:
        """Inner product; lazy."""
        return reductions.dot(self, other)

    def clip(self, min: Any = None, max: Any = None) -> DistArray:
        """Values limited to ``[min, max]``; lazy."""
        from distvec.array.functions import clip

        return clip(self, min, max)

    def round(self, decimals: int = 0) -> DistArray:
        """Rounded half to even; integers stay as they are; lazy."""
        from distvec.array.functions import round

        return round(self, decimals)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(hints.of_array(name), name=name, obj=self)

    # --- protocols ----------------------------------------------------------------------------

    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return dispatch.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return dispatch.function(func, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        from distvec.array.namespace import check_version

        check_version(api_version)
        return self.session.namespace

    def to_device(self, device: Any, /, *, stream: Any = None) -> DistArray:
        """The array itself: ``"servers"`` is the only device. ``ValueError`` for another."""
        if device != self.device or stream is not None:
            raise ValueError(
                f"device={device!r}: arrays are on {self.device!r}; to the client by x.numpy()"
            )
        return self
