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
from distvec.array.collectives.quantile import order_statistics
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
    """Return an initializer that draws rows uniformly from ``[low, high)``.

    Parameters
    ----------
    low : float
        Lower bound.
    high : float
        Upper bound, at least ``low``.
    seed : int, optional
        Seed of the random numbers. Default: a random one, so that two tables differ.

    Returns
    -------
    Uniform
        A rule for ``KeyedSpace.table(init=)``.

    Raises
    ------
    ValueError
        If a bound is not finite, or ``low`` exceeds ``high``.

    Notes
    -----
    The initial row of a key depends only on seed, key and column (Philox generator). So it does not
    depend on the number of servers or on the order of insertion.

    Examples
    --------
    >>> table = ps.keys().table(2, init=dv.uniform(-0.05, 0.05, seed=7))
    >>> table.pull(["a", "b"]).shape
    (2, 2)
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"uniform needs finite low <= high, got {low} and {high}")
    return Uniform(float(low), float(high), _check_seed(seed))


def normal(mean: float = 0.0, scale: float = 1.0, *, seed: int | None = None) -> Normal:
    """Return an initializer that draws rows from a normal distribution.

    Parameters
    ----------
    mean : float, default 0.0
        Mean of the distribution.
    scale : float, default 1.0
        Standard deviation, 0 or more.
    seed : int, optional
        Seed of the random numbers. Default: a random one, so that two tables differ.

    Returns
    -------
    Normal
        A rule for ``KeyedSpace.table(init=)``.

    Raises
    ------
    ValueError
        If an argument is not finite, or ``scale`` is negative.

    See Also
    --------
    uniform : Draw from an interval.

    Examples
    --------
    >>> table = ps.keys().table(4, init=dv.normal(scale=0.1, seed=7))
    >>> float(abs(table.pull([1])).max()) < 1
    True
    """
    if not (math.isfinite(mean) and 0 <= scale < math.inf):
        raise ValueError(f"normal needs a finite mean, and scale >= 0, got {mean} and {scale}")
    return Normal(float(mean), float(scale), _check_seed(seed))


def rule_of(init: Any, seed: int | None) -> Fill:
    """Return the initializer for ``init``, a rule or a number, with ``seed`` if that is given."""
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
    """A set of keys, with vectors and tables over them that grow together.

    ``Session.keys`` creates one. It is a distributed hash table: a key is any int64, and its
    hash decides on the server that stores it. A key that was never written has the initial value
    of each array and takes no memory; reading does not insert it. Writing to one array inserts
    the key into all arrays of the space. So they stay aligned, can be used in one expression,
    and are evicted together.

    Parameters
    ----------
    session : Session
        The session that has the servers.
    length : int, default 0
        The n of a dense range of keys, ``range(n)``; 0 for any keys.
    admit : int, default 1
        Number of writes after which a key is inserted, 1 to 255.
    sketch : int, optional
        Bytes of an approximate count of keys that are not inserted yet. Default: exact counts.
    most_bytes : int, optional
        Memory limit on all servers together. Default: the servers' memory.

    Notes
    -----
    Each method that sends requests says how many. All of them raise ``ServerLost`` if a server
    does not answer.

    Examples
    --------
    >>> space = ps.keys()
    >>> w, counts = space.zeros(), space.zeros(dtype="int64")
    >>> w.push([17, -3], [0.5, 1.0])
    >>> counts.push([17], 1)
    >>> len(space), 17 in space, 5 in space
    (2, True, False)
    >>> dict(zip(space.keys().tolist(), (w + counts).tolist()))
    {-3: 1.0, 17: 1.5}
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
        """Create the space on the servers; see the class."""
        if not 1 <= operator.index(admit) <= 255:
            raise ValueError(f"admit must be between 1 and 255, got {admit}")
        if sketch is not None and admit == 1:
            raise ValueError(
                "sketch= counts writes of keys that are not inserted yet; it needs admit= of 2 "
                "or more"
            )
        if length and admit > 1:
            raise ValueError(
                "the keys of a range exist from the start, so admit= has no effect; leave it out"
            )
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

    def reconnect(self) -> None:
        """Use the servers on which the session has its arrays now."""
        partition = Partition(self.options["length"] or 0)
        self.remote, self._layout = self.session.client.key_space(self.number, partition), None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process; its copy joins the session and frees no memory."""
        own = {"session": self.session.joinable(), "number": self.number}
        return {**own, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, arrays=weakref.WeakValueDictionary())
        self.reconnect()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyedSpace):
            return NotImplemented
        return (self.session, self.number) == (other.session, other.number)

    def __hash__(self) -> int:
        return hash((KeyedSpace, self.number))

    # --- arrays -----------------------------------------------------------------------------------

    def zeros(self, dtype: npt.DTypeLike = np.float64) -> KeyedArray:
        """Create a vector with the initial value 0 for all keys.

        Parameters
        ----------
        dtype : dtype, default float64
            Dtype of the elements.

        Returns
        -------
        KeyedArray
            The vector. One request per server.
        """
        return self.array((), Constant(0), dtype)

    def full(self, fill_value: float, dtype: npt.DTypeLike | None = None) -> KeyedArray:
        """Create a vector with the initial value ``fill_value`` for all keys.

        Parameters
        ----------
        fill_value : float
            Initial value of each key.
        dtype : dtype, optional
            Dtype of the elements. Default: that of ``fill_value``.

        Returns
        -------
        KeyedArray
            The vector. One request per server.
        """
        kind = np.result_type(fill_value) if dtype is None else dtype
        return self.array((), Constant(fill_value), kind)

    def table(
        self,
        columns: int,
        *,
        init: float | Uniform | Normal = 0.0,
        seed: int | None = None,
        dtype: npt.DTypeLike = np.float32,
        wire: str | None = None,
    ) -> KeyedArray:
        """Create a table (2-D array) with one row for each key.

        Parameters
        ----------
        columns : int
            Length of a row, 1 or more.
        init : float, Uniform or Normal, default 0.0
            Initial value of rows: a number, ``dv.uniform(low, high)`` or
            ``dv.normal(mean, scale)``.
        seed : int, optional
            Seed of the initializer. Default: the initializer's own.
        dtype : dtype, default float32
            Dtype of the elements.
        wire : {"float32", "float16", "int8"}, optional
            Transfer dtype of rows, see ``KeyedArray.wire``. Default: uncompressed.

        Returns
        -------
        KeyedArray
            The table. One request per server.

        Raises
        ------
        ValueError
            If ``columns`` is less than 1.
        TypeError
            If ``init`` is not an initializer.

        Notes
        -----
        The initial row of a key depends only on seed, key and column.
        """
        count = operator.index(columns)
        if count < 1:
            raise ValueError(f"columns must be 1 or more, got {columns}")
        made = self.array((count,), rule_of(init, seed), dtype)
        made.wire = wire
        return made

    def array(self, row: Row, fill: Fill, dtype: npt.DTypeLike) -> KeyedArray:
        """Create an array with rows of a given shape.

        Parameters
        ----------
        row : tuple of int
            Shape of a row: ``()`` or ``(k,)``.
        fill : Fill
            Initial value of rows.
        dtype : dtype
            Dtype of the elements.

        Returns
        -------
        KeyedArray
            The array. One request per server.

        Raises
        ------
        OverflowError
            If the dtype cannot hold the initial value.
        """
        kind = check_dtype(dtype)
        evaluate(fill, np.zeros(1, np.int64), (), kind)  # OverflowError if the dtype cannot hold it
        number = self.session.client.new_id()
        type = ValueType(kind.name, row)
        with measured(self.session.counters):
            self.remote.add_array(number, type, fill)
        return KeyedArray(self, number, type, fill)

    # --- keys -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.state().keys

    def state(self) -> SpaceState:
        """Return the counts of keys, bytes and evictions.

        Returns
        -------
        SpaceState
            The sums over all servers. ``keys`` and ``bytes`` are current; ``evicted`` counts
            removed keys, ``refused`` keys without memory, and ``waiting`` writes to keys not
            inserted yet.

        Notes
        -----
        One request per server.
        """
        with measured(self.session.counters):
            states = self.remote.layout()
        return SpaceState(*map(sum, zip(*states, strict=True)))

    def contains(self, keys: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which keys exist.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``.

        Returns
        -------
        numpy.ndarray of bool
            Whether each key exists, shape ``(n,)``.

        Notes
        -----
        One request to each server that stores some of the keys.
        """
        chosen = ChosenKeys.of(self, keys)
        _, found = chosen.run(_FOUND, find=True)
        assert found is not None
        return np.asarray(chosen.batch.expanded(found), np.bool_)

    def __contains__(self, key: Any) -> bool:
        return bool(self.contains([key])[0])

    def keys(self) -> Keys:
        """Return all keys.

        Returns
        -------
        numpy.ndarray of int64
            The keys, shape ``(n,)``: by hash bucket, then in order of insertion.

        Notes
        -----
        Two requests per server.
        """
        return self.retried(lambda layout: np.concatenate([*self._pieces(layout)]))

    def _pieces(self, layout: Layout) -> Iterator[Keys]:
        with measured(self.session.counters):
            for server, count in enumerate(layout.counts):
                yield self.remote.read_keys(server, layout.versions[server], 0, count)

    def items(self, *arrays: KeyedArray, batch: int = 1 << 16) -> Iterator[tuple[Any, ...]]:
        """Iterate over the keys and their rows in batches, in the order of ``keys()``.

        Parameters
        ----------
        *arrays : KeyedArray
            Arrays of this space.
        batch : int, default 65536
            Largest number of keys in a batch.

        Yields
        ------
        tuple of numpy.ndarray
            The keys of a batch, and the rows of each array.

        Raises
        ------
        LayoutChanged
            If keys are inserted or removed during the iteration.

        Notes
        -----
        Two requests per batch. Rows are current when their batch is read.

        Examples
        --------
        >>> space = ps.keys()
        >>> w = space.zeros()
        >>> w.push([1, 2], [0.5, 1.0])
        >>> sorted((int(k), float(x)) for keys, rows in space.items(w) for k, x in zip(keys, rows))
        [(1, 0.5), (2, 1.0)]
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

    def remove(self, keys: npt.ArrayLike) -> None:
        """Remove keys from all arrays of the space.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``. Keys that do not exist are ignored.

        Raises
        ------
        TypeError
            If the space has a dense range of keys.

        Notes
        -----
        One request to each server that stores some of the keys. A removed key that is written again
        begins with its initial value.
        """
        self._refuse_range("remove")
        with measured(self.session.counters):
            self.remote.remove(KeyBatch.of(as_keys(keys)))

    # --- row functions ---------------------------------------------------------------------------

    def apply(
        self,
        function: RowFunction | Plugin,
        keys: npt.ArrayLike,
        *args: KeyedArray | npt.ArrayLike,
        combine: str = "add",
        wire: str | None = None,
        **named: KeyedArray | npt.ArrayLike,
    ) -> Any:
        """Run a row function on the servers, on the rows of ``keys``.

        Parameters
        ----------
        function : RowFunction or Plugin
            A function decorated with ``dv.rows``, or a function of the servers, ``dv.rows.plugin``.
            If it writes rows, keys that do not exist are inserted.
        keys : array_like of int or str
            Keys, shape ``(n,)``.
        *args : KeyedArray or array_like
            Arguments of the function: an array of this space passes its rows; a NumPy array of
            length n passes one row per key; numbers and small arrays are the same for all keys.
        combine : {"add", "min", "max", "replace"}, default "add"
            How the given rows of a repeated key are combined first, in their order.
        wire : {"float32", "float16", "int8", "off"}, optional
            Transfer dtype of given and returned rows of floats. Default: uncompressed.
        **named : KeyedArray or array_like
            Arguments of the function by name.

        Returns
        -------
        numpy.ndarray, tuple of numpy.ndarray or None
            The values that the function returns per key, for each of ``keys``.

        Raises
        ------
        ValueError
            If an argument has the wrong number of rows, or belongs to another space.
        OutOfBudget
            If a server has no memory for new keys, see ``KeyedArray.push``.

        Notes
        -----
        One request to each server that stores some of the keys.

        Examples
        --------
        >>> @dv.rows
        ... def step(w, squares, gradient, step_size):
        ...     squares = squares + gradient * gradient
        ...     return {"w": w - step_size * gradient / np.sqrt(squares), "squares": squares}
        >>> space = ps.keys()
        >>> w, squares = space.zeros(), space.zeros()
        >>> space.apply(step, [3, 4], w, squares, np.array([2.0, -1.0]), 0.5)
        >>> w.pull([3, 4])
        array([-0.5,  0.5])
        """
        chosen = ChosenKeys.of(self, keys)
        return chosen.apply(function, args, named, combine=combine, wire=wire)

    # --- eviction ---------------------------------------------------------------------------------

    def evict(self, mask: DistArray | KeyedArray) -> int:
        """Remove the keys at which a mask is true.

        Parameters
        ----------
        mask : DistArray or KeyedArray
            Booleans: an expression over arrays of this space.

        Returns
        -------
        int
            Number of removed keys.

        Raises
        ------
        LayoutChanged
            If keys were inserted or removed since the arrays of the mask were read.
        TypeError
            If the space has a dense range of keys.

        Notes
        -----
        One request computes the mask, one counts, and one evicts.

        Examples
        --------
        >>> space = ps.keys()
        >>> last_seen = space.zeros()
        >>> last_seen.push([1, 2], [10.0, 90.0])
        >>> space.evict(100 - last_seen > 30)
        1
        """
        self._refuse_range("evict")
        chosen = self._align(mask, np.dtype(np.bool_), "mask")
        count = int(np.count_nonzero(chosen))
        if count:
            layout, kept = self._store(~chosen)
            with measured(self.session.counters):
                self.remote.keep(layout.versions, StoredArray(kept.id, kept.type))
            self._layout = None
        return count

    def keep(self, count: int, *, by: DistArray | KeyedArray) -> int:
        """Keep the keys with the largest scores, and remove all others.

        Parameters
        ----------
        count : int
            Number of keys to keep.
        by : DistArray or KeyedArray
            The scores: an array of this space, or an expression over some. NaN counts as the
            largest. Among equal scores, the first keys in the order of ``keys()`` stay.

        Returns
        -------
        int
            Number of removed keys.

        Raises
        ------
        ValueError
            If ``count`` is negative.
        LayoutChanged
            If keys were inserted or removed since the arrays of ``by`` were read.

        Notes
        -----
        Finds the smallest score that stays, then costs as much as ``evict``.
        """
        most = operator.index(count)
        if most < 0:
            raise ValueError(f"count must be 0 or more, got {count}")
        score = by.values if isinstance(by, KeyedArray) else by
        surplus = len(score) - most
        if surplus <= 0:
            return 0
        return self.evict(~_largest(score, most))

    def _refuse_range(self, what: str) -> None:
        if self.remote.partition.length:
            raise TypeError(
                f"{what}: the keys of a range cannot be removed; assign their initial values "
                "instead"
            )

    # --- as plain arrays --------------------------------------------------------------------------

    def frozen(self, *arrays: KeyedArray | None) -> list[DistArray]:
        """Return arrays as plain arrays, all read at one moment and aligned to each other.

        Parameters
        ----------
        *arrays : KeyedArray or None
            Arrays of this space; ``None`` stands for the keys.

        Returns
        -------
        list of DistArray
            The values, in the order of ``keys()``.

        Notes
        -----
        Two requests per server; one if no key was inserted or removed since the last read.
        """
        return self.retried(lambda layout: freeze(self.session, self.remote, layout, arrays))

    def assign(self, array: KeyedArray, values: DistArray | KeyedArray) -> None:
        """Replace the rows of all keys by an expression over arrays of this space.

        Parameters
        ----------
        array : KeyedArray
            The array to write to.
        values : DistArray or KeyedArray
            The new rows.

        Raises
        ------
        LayoutChanged
            If keys were inserted or removed since the arrays of ``values`` were read.
        """
        layout, given = self._store(self._align(values, array.dtype, "values"))
        with measured(self.session.counters):
            source = StoredArray(given.id, given.type)
            self.remote.thaw(layout.versions, [source], [array.number])

    def adopt(self, keys: DistArray, rows: Sequence[tuple[KeyedArray, DistArray]]) -> None:
        """Fill an empty space with values that ``frozen`` returned.

        Parameters
        ----------
        keys : DistArray
            All keys, int64.
        rows : sequence of tuple of (KeyedArray, DistArray)
            Arrays of this space, with their rows in the order of ``keys``.

        Notes
        -----
        One request reads the keys, one moves the rows, and one fills the space.
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
        """Return the layout, and ``values`` in its order as a buffer."""
        layout = self.layout()
        return layout, store_in_layout(values, layout)

    def _align(self, values: Any, dtype: np.dtype[Any], name: str) -> DistArray:
        """Return ``values`` as an array of ``dtype`` in the order of the current layout.

        A plain array of the same length is assumed to be in that order, for example the result of a
        sort. Raises ``LayoutChanged`` for another length or layout.
        """
        given: Any = values.values if isinstance(values, KeyedArray) else values
        if not isinstance(given, Handle):
            raise TypeError(
                f"{name} must be an expression over arrays of the space, got "
                f"{type(given).__name__}; to write some keys, call assign(keys, values)"
            )
        layout = self.layout()
        if given.space not in layout.spaces:
            layout = self.layout(fresh=True)
        if given.space not in layout.spaces and layout.length:
            raise LayoutChanged(
                f"{name} is over {given.space}, but the keyed space has {layout.length} keys "
                "now: keys were inserted or removed after its arrays were read, or it belongs "
                "to another space; compute it again"
            )
        array: Any = given if given.dtype == dtype else given.astype(dtype)
        return cast(DistArray, array)

    def layout(self, *, fresh: bool = False) -> Layout:
        """Return the order of the keys.

        Parameters
        ----------
        fresh : bool, default False
            Whether to ask the servers, one request each, instead of using the last known order.

        Returns
        -------
        Layout
            Number of keys and version of each server.
        """
        if (
            fresh or self._layout is None or not self._layout.length
        ):  # no server checks an empty one
            with measured(self.session.counters):
                states = self.remote.layout()
            self._layout = Layout.of(self.number, states, self.remote.partition.length > 0)
        return self._layout

    def retried(self, ask: Callable[[Layout], Result]) -> Result:
        """Call a function with the current layout, again if keys were inserted meanwhile.

        Parameters
        ----------
        ask : callable
            A function of a ``Layout``.

        Returns
        -------
        object
            The result of ``ask``.

        Raises
        ------
        LayoutChanged
            If the layout changed during each of twenty attempts.
        """
        for _ in range(_MOST_TRIES - 1):
            try:
                return ask(self.layout())
            except LayoutChanged:
                self._layout = None
        return ask(self.layout())

    def __repr__(self) -> str:
        about = ", ".join([*key_count(self), repr(self.session)])
        return f"<keyed space {self.number} of {about}>"


def _largest(score: DistArray, count: int) -> Any:
    """Booleans: the ``count`` largest scores, NaN as the largest, and of equal ones the first."""
    if not count:
        return zeros_like(score, dtype=bool)
    rank = np.array([[len(score) - count]])
    least = order_statistics(score, rank, 0).numpy()[0]  # of those that are chosen
    is_nan = score != score
    equal, above = (score == least, (score > least) | is_nan) if least == least else (is_nan, None)
    free = count if above is None else count - int(np.count_nonzero(above))
    if int(np.count_nonzero(equal)) > free:
        equal = equal & (np.cumsum(equal) <= free)
    return equal if above is None else above | equal
