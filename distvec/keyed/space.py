"""A keyed space: keys, the arrays over them and how their rows begin, and what is done to all."""

from __future__ import annotations

import math
import operator
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from distvec.array.array import DistArray
from distvec.array.core.handle import Handle, SessionBase
from distvec.array.elementwise import zeros_like
from distvec.diagnostics.profile import measured
from distvec.graph.build import check_dtype
from distvec.graph.node import Buffer
from distvec.keyed.array import KeyedArray, key_count
from distvec.keyed.row_call import ChosenKeys, as_keys
from distvec.keyed.snapshot import Layout, freeze, store_in_layout
from distvec.rows.api import Plugin, RowFunction
from ps_backend.client import KeyBatch, KeySpace, SpaceState, StoredArray
from ps_backend.errors import LayoutChanged
from ps_backend.program.initializers import Constant, Fill, Normal, Uniform, evaluate
from ps_backend.program.keys import Partition
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import Row, ValueType


def uniform(low: float, high: float, *, seed: int | None = None) -> Uniform:
    """Rows begin uniform in ``[low, high)``: ``space.table(16, init=dv.uniform(-0.05, 0.05))``.

    What a key begins with depends on seed, key and column alone (Philox). Without a ``seed`` one is
    drawn, so that two tables differ.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"uniform needs finite low <= high, got {low} and {high}")
    return Uniform(float(low), float(high), _check_seed(seed))


def normal(mean: float = 0.0, scale: float = 1.0, *, seed: int | None = None) -> Normal:
    """Rows begin normally distributed; as ``uniform``."""
    if not (math.isfinite(mean) and 0 <= scale < math.inf):
        raise ValueError(f"normal needs a finite mean, and scale >= 0, got {mean} and {scale}")
    return Normal(float(mean), float(scale), _check_seed(seed))


def rule_of(init: Any, seed: int | None) -> Fill:
    """What a user gave as ``init``, a rule or a number; with another ``seed``, if that is given."""
    if isinstance(init, Uniform | Normal):
        return init if seed is None else replace(init, seed=_check_seed(seed))
    if isinstance(init, Constant):
        return init
    if isinstance(init, int | float):
        return Constant(init)
    raise TypeError(
        f"init must be a number, dv.uniform(low, high) or dv.normal(mean, scale), got {init!r}"
    )


def _check_seed(seed: int | None) -> int:
    if seed is None:
        return secrets.randbits(62)
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed must fit int64, got {seed}")
    return seed


Keys = npt.NDArray[np.int64]
Result = TypeVar("Result")

_MOST_TRIES = 20
"""So often is asked again for a layout that tasks change meanwhile."""
_FOUND = RowProgram(Sweep((), (), (), (), ()))
"""Asks nothing of the arrays, only where keys are."""


class KeyedSpace:
    """Keys, and vectors and tables over them that grow together.

        space = ps.keys()
        w, counts = space.zeros(), space.zeros(dtype="int64")
        t = space.table(16, init=dv.uniform(-0.05, 0.05), seed=7)

    A key is any int64; which server has it follows from its hash. A key that was never written has
    the initial value of each array, and takes no memory; reading it inserts nothing. Writing to one
    array inserts it into all, so the arrays stay aligned: they may be used in one expression, and
    are evicted together.

    Each method that asks servers says how many messages that takes. All raise ``ServerLost``.
    """

    def __init__(
        self,
        session: SessionBase,
        *,
        length: int = 0,
        admit: int = 1,
        sketch: int | None = None,
        most_bytes: int | None = None,
    ) -> None:
        """As of ``Session.keys``; ``length``: of a range of keys, 0 for any."""
        if not 1 <= operator.index(admit) <= 255:
            raise ValueError(f"admit must be 1 .. 255, got {admit}")
        if sketch is not None and admit == 1:
            raise ValueError("sketch counts keys that are not admitted yet; give admit= as well")
        if length and admit > 1:
            raise ValueError("the keys of a range are all there from the start: leave admit= out")
        self.session = session
        self.options = {
            "length": length, "admit": admit, "sketch": sketch, "most_bytes": most_bytes,
        }  # fmt: skip
        """With which it was made."""
        self.number = session.client.new_id()
        """Of the space, among all that the session has numbers for."""
        self.remote: KeySpace = session.client.key_space(self.number, Partition(length))
        self._layout: Layout | None = None
        self.arrays: weakref.WeakValueDictionary[int, KeyedArray] = weakref.WeakValueDictionary()
        """Those that somebody has, by number."""
        with measured(session.counters):
            self.remote.make(admit=admit, sketch=sketch or 0, most_bytes=most_bytes or 0)
        self._free = weakref.finalize(self, session.client.free, [self.number])
        self._free.atexit = False
        session.spaces[self.number] = self

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process joins the session there, and frees nothing."""
        own = {"session": self.session.joinable(), "number": self.number}
        return {**own, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _layout=None, arrays=weakref.WeakValueDictionary())
        partition = Partition(self.options["length"] or 0)
        self.remote = self.session.client.key_space(self.number, partition)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyedSpace):
            return NotImplemented
        return (self.session, self.number) == (other.session, other.number)

    def __hash__(self) -> int:
        return hash((KeyedSpace, self.number))

    # --- arrays -----------------------------------------------------------------------------------

    def zeros(self, dtype: Any = np.float64) -> KeyedArray:
        """A vector whose keys begin with 0. One message a server."""
        return self.array((), Constant(0), dtype)

    def full(self, fill_value: float, dtype: Any = None) -> KeyedArray:
        """A vector whose keys begin with ``fill_value``. One message a server."""
        kind = np.result_type(fill_value) if dtype is None else dtype
        return self.array((), Constant(fill_value), kind)

    def table(
        self,
        columns: int,
        *,
        init: Any = 0.0,
        seed: int | None = None,
        dtype: Any = np.float32,
        wire: str | None = None,
    ) -> KeyedArray:
        """A table with rows of so many elements. One message a server.

        ``init``: a number, or how rows begin: ``dv.uniform(low, high, seed=)``, ``dv.normal(mean,
        scale, seed=)``; ``seed``: in place of the one there. What a key begins with depends on
        seed, key and column alone. ``wire``: "float32", "float16" or "int8", as which rows travel:
        see ``KeyedArray.wire``.
        """
        count = operator.index(columns)
        if count < 1:
            raise ValueError(f"columns must be 1 or more, got {columns}")
        made = self.array((count,), rule_of(init, seed), dtype)
        made.wire = wire
        return made

    def array(self, row: Row, fill: Fill, dtype: Any) -> KeyedArray:
        """An array with rows of this shape, ``()`` or ``(k,)``. One message a server."""
        kind = check_dtype(dtype)
        evaluate(fill, np.zeros(1, np.int64), (), kind)  # OverflowError for what the dtype has not
        number = self.session.client.new_id()
        type = ValueType(kind.name, row)
        with measured(self.session.counters):
            self.remote.add_array(number, type, fill)
        return KeyedArray(self, number, type, fill)

    # --- keys -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.state().keys

    def state(self) -> SpaceState:
        """How many keys and bytes there are, and how many keys were evicted, or refused for want
        of memory, and how many changes were dropped as their keys were not admitted yet.

        One message a server.
        """
        with measured(self.session.counters):
            states = self.remote.layout()
        return SpaceState(*map(sum, zip(*states, strict=True)))

    def contains(self, keys: Any) -> npt.NDArray[np.bool_]:
        """Whether each of ``keys`` is there, shape ``(n,)``. One message to each holder."""
        chosen = ChosenKeys.of(self, keys)
        _, found = chosen.run(_FOUND, find=True)
        assert found is not None
        return np.asarray(chosen.batch.expanded(found), np.bool_)

    def __contains__(self, key: Any) -> bool:
        return bool(self.contains([key])[0])

    def keys(self) -> Keys:
        """All keys, shape ``(n,)``, by bucket, then as inserted. Two messages a server."""
        return self.retried(lambda layout: np.concatenate([*self._pieces(layout)]))

    def _pieces(self, layout: Layout) -> Iterator[Keys]:
        with measured(self.session.counters):
            for server, count in enumerate(layout.counts):
                yield self.remote.read_keys(server, layout.versions[server], 0, count)

    def items(self, *arrays: KeyedArray, batch: int = 1 << 16) -> Iterator[tuple[Any, ...]]:
        """Keys and their rows, ``(keys, rows, ...)``, at most ``batch`` at once, in the order of
        ``keys()``.

            for keys, weights, rows in space.items(w, t): ...

        Two messages a batch. Rows are those of when the batch is read. Raises ``LayoutChanged``
        if keys are inserted or removed meanwhile.
        """
        size = operator.index(batch)
        if size < 1:
            raise ValueError(f"batch must be 1 or more, got {batch}")
        layout = self.layout(fresh=True)
        for server, count in enumerate(layout.counts):
            for first in range(0, count, size):
                some = min(size, count - first)
                with measured(self.session.counters):
                    version = layout.versions[server]
                    keys = self.remote.read_keys(server, version, first, some)
                yield keys, *(array.pull(keys) for array in arrays)

    def remove(self, keys: Any) -> None:
        """Remove keys from all arrays; those that are not there are none. One message a holder.

        Written to again, they begin anew with their initial values.
        """
        self._refuse_range("remove")
        with measured(self.session.counters):
            self.remote.remove(KeyBatch.of(as_keys(keys)))

    # --- row functions ---------------------------------------------------------------------------

    def apply(
        self,
        function: RowFunction | Plugin,
        keys: Any,
        *args: Any,
        combine: str = "add",
        wire: str | None = None,
        **named: Any,
    ) -> Any:
        """Run a row function on the servers, on the rows of ``keys``: one message to each holder.

            @dv.rows
            def step(w, squares, gradient, step_size):
                squares = squares + gradient * gradient
                return {"w": w - step_size * gradient / np.sqrt(squares), "squares": squares}

            space.apply(step, keys, w, squares, gradients, 0.1)

        ``function`` may also be one that the servers' operator has loaded, ``dv.rows.plugin``.
        Arguments are arrays of this space, of which the function gets the rows; NumPy arrays with
        a row for each of ``keys``; and what is the same for all keys, numbers and small arrays.
        Returns what the function returns per key, for each of ``keys`` as they were given. A
        function that writes inserts the keys that are not there. Of a key that repeats, the rows
        that are given are joined first, in their order: by ``combine``, "add", "min", "max", or
        "replace" for the last one. ``wire``: how rows of floats travel that are given and returned,
        as of ``KeyedArray.push``; "int8" is of those with columns. Raises ``OutOfBudget`` as that.
        """
        chosen = ChosenKeys.of(self, keys)
        return chosen.apply(function, args, named, combine=combine, wire=wire)

    # --- eviction ---------------------------------------------------------------------------------

    def evict(self, mask: Any) -> int:
        """Remove the keys where ``mask`` is true; returns how many.

            space.evict(now - last_seen > ttl)

        ``mask``: of booleans, of an expression over arrays of this space. Raises ``LayoutChanged``
        if keys were inserted or removed since these were read. One message that computes it, one
        that counts, one that evicts.
        """
        self._refuse_range("evict")
        chosen = self._align(mask, np.dtype(np.bool_), "mask")
        count = int(np.count_nonzero(chosen))
        if count:
            layout, mask = self._store(~chosen)
            with measured(self.session.counters):
                self.remote.keep(layout.versions, StoredArray(mask.id, mask.type))
            self._layout = None
        return count

    def keep(self, count: int, *, by: Any) -> int:
        """Keep the ``count`` keys with the largest ``by``, and evict all others: how many.

        ``by``: an array of this space, or an expression over some. Of equal ones those stay that
        come first in ``keys()``; NaN counts as the largest.
        """
        most = operator.index(count)
        if most < 0:
            raise ValueError(f"count must be 0 or more, got {count}")
        score = by.values if isinstance(by, KeyedArray) else by
        surplus = len(score) - most
        if surplus <= 0:
            return 0
        mask = zeros_like(score, dtype=bool)
        worst = np.argsort(score[::-1], kind="stable")[:surplus]
        mask[len(score) - 1 - worst] = True
        return self.evict(mask)

    def _refuse_range(self, what: str) -> None:
        if self.remote.partition.length:
            raise TypeError(
                f"{what}: the keys of a range stay; assign to their rows what they began with"
            )

    # --- as plain arrays --------------------------------------------------------------------------

    def frozen(self, *arrays: KeyedArray | None) -> list[DistArray]:
        """Arrays as they are at one moment, None for the keys: plain ones, aligned to each other.

        In the order of ``keys()``. Two messages a server, one where no key was inserted or removed
        since the last time.
        """
        return self.retried(lambda layout: freeze(self.session, self.remote, layout, arrays))

    def assign(self, array: KeyedArray, values: Any) -> None:
        """Let ``array`` have ``values``, an expression over arrays of this space, for all keys."""
        layout, given = self._store(self._align(values, array.dtype, "values"))
        with measured(self.session.counters):
            source = StoredArray(given.id, given.type)
            self.remote.thaw(layout.versions, [source], [array.number])

    def adopt(self, keys: DistArray, rows: Sequence[tuple[KeyedArray, DistArray]]) -> None:
        """Fill the space, which has no keys, with what ``frozen`` gave once; all int64 ``keys``.

        One message that reads the keys, one that moves all, one that fills.
        """
        holders = self.remote.partition.server_of(keys.numpy(), self.remote.servers)
        counts = np.bincount(holders, minlength=self.remote.servers)
        zeros, is_range = (0,) * len(counts), self.remote.partition.length > 0
        layout = Layout(self.remote.number, tuple(counts.tolist()), zeros, is_range)
        if not layout.length:
            return
        moved = [store_in_layout(one, layout) for one in (keys, *(one for _, one in rows))]
        found = [StoredArray(one.id, one.type) for one in moved]
        with measured(self.session.counters):
            self.remote.adopt(found[0], found[1:], [array.number for array, _ in rows])

    def _store(self, values: DistArray) -> tuple[Layout, Buffer]:
        """An array in the order of the layout, and that, as a buffer."""
        layout = self.layout()
        return layout, store_in_layout(values, layout)

    def _align(self, values: Any, dtype: np.dtype[Any], name: str) -> DistArray:
        """``values`` as an array of ``dtype`` in the order of the present layout.

        A plain array of that length is taken to be in that order, as what a sort gives.
        ``LayoutChanged`` for one of another length or layout.
        """
        given: Any = values.values if isinstance(values, KeyedArray) else values
        if not isinstance(given, Handle):
            raise TypeError(
                f"{name} must be an expression over arrays of the space, got "
                f"{type(given).__name__}; write to chosen keys by assign(keys, values)"
            )
        layout = self.layout()
        if given.space not in layout.spaces:
            layout = self.layout(fresh=True)
        if given.space not in layout.spaces and layout.length:
            raise LayoutChanged(
                f"{name} is over {given.space}, and the keyed space has {layout.length} keys now: "
                f"keys were inserted or removed since its arrays were read, or it is of another "
                f"space; compute it again"
            )
        array: Any = given if given.dtype == dtype else given.astype(dtype)
        return cast(DistArray, array)

    def layout(self, *, fresh: bool = False) -> Layout:
        """The order of the keys: the last known one, or that of now, one message a server."""
        if fresh or self._layout is None or not self._layout.length:  # empty: nobody checks it
            with measured(self.session.counters):
                states = self.remote.layout()
            self._layout = Layout.of(self.number, states, self.remote.partition.length > 0)
        return self._layout

    def retried(self, ask: Callable[[Layout], Result]) -> Result:
        """What ``ask`` returns for the layout of now, which others may be changing."""
        for _ in range(_MOST_TRIES - 1):
            try:
                return ask(self.layout())
            except LayoutChanged:
                self._layout = None
        return ask(self.layout())

    def __repr__(self) -> str:
        about = ", ".join([*key_count(self), repr(self.session)])
        return f"<keyed space {self.number} of {about}>"
