"""A session: one client's connection, the arrays it made, and when they are evaluated."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from distvec.array import error_hints
from distvec.array.array import DistArray, ReadonlySlice
from distvec.array.collectives.core import scatter_now
from distvec.array.column_split import ColumnSplit, RowSplit, Transposed
from distvec.array.core.handle import SessionBase, check_session, express
from distvec.array.core.shapes import (
    client_array,
    filled,
    iota,
    length_of,
    on_servers,
    put,
    reshape,
    shape_of,
)
from distvec.array.dispatch.array_api import Namespace, shared_names
from distvec.array.elementwise import apply, where
from distvec.array.random import Random
from distvec.array.repr import summary, table
from distvec.array.selection import Selection
from distvec.array.sequences import geomspace, logspace
from distvec.autodiff.functions import hessian_product, value_and_grad
from distvec.dashboard.dashboard import Dashboard, open_for_session
from distvec.durability.checkpoints import Checkpoint, Restored
from distvec.durability.load import Loaded, load
from distvec.durability.policy import Durability
from distvec.durability.published_names import Names
from distvec.durability.replay import Replay
from distvec.durability.resize import checkpoints_for, resize, warn_of_other_bits
from distvec.durability.save import Saveable, save
from distvec.graph.build import check_dtype, collect
from distvec.graph.host_eval import MOST_ELEMENTS
from distvec.keyed.array import KeyedArray
from distvec.keyed.row_call import length_of_range
from distvec.keyed.space import KeyedSpace
from ps_backend.client import Client
from ps_backend.durability.stores import Store
from ps_backend.errors import CheckpointIncomplete, PSError
from ps_backend.program.collectives import ASSIGN

Directory: TypeAlias = str | os.PathLike[str] | None
"""Directory or URL of checkpoints, which all servers can reach. None: that of the session."""

Shape: TypeAlias = int | tuple[int, ...] | list[int]


class Owner(Protocol):
    """The servers that a session stops when it closes."""

    def stop(self) -> None:
        """Stop them."""


class Opener(NamedTuple):
    """How the session was opened, so that another one can be on other servers."""

    open: Callable[[Any, Client | None], tuple[Client, Owner | None]]
    """On so many servers, or on those at some addresses, for the arrays of a client, if any."""
    has_disk: bool
    """Have the servers, and this process, one file system?"""


class Session(SessionBase):
    """Hold a connection to parameter servers, and create arrays on them.

    Open a session with ``distvec.local`` or ``distvec.connect``. Use it as a context manager, or
    close it: closing frees its arrays and stops the servers that it started. Sessions of one
    process are independent of each other.

    Parameters
    ----------
    client : Client
        The connection to the servers.
    owner : Owner, optional
        The servers to stop when the session closes.
    durability : Durability, optional
        The level of durability and the directory of checkpoints. Default: ``"none"``, no directory.
    name : str, optional
        Name under which ``distvec.attach`` can take over the session.
    opener : Opener, optional
        How to open a session on other servers. Required by ``resize``.

    Attributes
    ----------
    durability : Durability
        The level of durability and the directory of checkpoints.
    names : Names
        The published arrays: ``list(ps.names)`` lists their names, ``ps["w"]`` returns one.
    random : Random
        Random arrays of this session: ``ps.random.normal(size=8, seed=1)``.

    See Also
    --------
    distvec.local : Start servers on this machine.
    distvec.connect : Connect to running servers.

    Examples
    --------
    >>> with dv.local(2, in_process=True) as ps:
    ...     x = ps.array([1.0, 2.0, 3.0])
    ...     y = 2 * x + 1
    ...     print(y.numpy(), float(x @ y))
    [3. 5. 7.] 34.0
    """

    def __init__(
        self,
        client: Client,
        *,
        owner: Owner | None = None,
        durability: Durability | None = None,
        name: str | None = None,
        opener: Opener | None = None,
    ) -> None:
        """``owner`` is stopped when the session closes, if it has a ``stop()``.

        ``name``: by which others may take it over; ``opener``: for ``resize``.
        """
        if not isinstance(client, Client):
            raise TypeError(
                f"a Session needs a Client, got {type(client).__name__}; "
                f"open one by distvec.local() or distvec.connect('host:port')"
            )
        super().__init__(client)
        self.durability = Durability() if durability is None else durability
        self.names = Names(self, name)
        self.random = Random(self)
        self._owner, self._opener = owner, opener
        self._dashboard: Dashboard | None = None
        self._closed = False
        self._replay: Replay | None = None
        if self.durability.replays:
            checkpoints = self.durability.checkpoints(self)
            self._replay = Replay(checkpoints, self.names, client.keep_journal())
            self.make_room = self._replay.make_room

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} holds this process's connections and cannot be pickled; in "
            "Spark tasks use the w of 'with ps.share(x) as w', the r of 'with ps.round(x) as "
            "r', or run(train, rdd, x); another process connects by itself: "
            "dv.connect(addresses, token=)"
        )

    @property
    def cancellation_limit(self) -> float:
        """Limit on the cancellation in an expanded inner product.

        The planner expands an inner product of sums, such as ``(x - y) @ (x - y)``, into inner
        products that it already has. The cancellation is the sum of the magnitudes of the terms,
        divided by the magnitude of their sum. Above the limit, the product is computed directly.

        Returns
        -------
        float
            The limit, default 1e4: at most four of the digits of float64 are lost. ``inf`` removes
            the limit; below 1 no product is expanded.
        """
        return self.planner.cancellation_limit

    @cancellation_limit.setter
    def cancellation_limit(self, limit: float) -> None:
        if not limit >= 0:
            raise ValueError(f"cancellation_limit must be 0 or more, got {limit!r}")
        self.planner.cancellation_limit = limit

    @property
    def client_limit(self) -> int:
        """Limit on the elements of a new array that is stored on the client.

        Set it for programs on short vectors. Functions that create arrays, such as ``ps.array``,
        ``ps.zeros`` and ``ps.random.normal``, then store arrays of at most so many elements on the
        client. NumPy computes operations of these arrays immediately, without a request. The
        servers get a copy when a task, a keyed space or an array on the servers needs it.

        Returns
        -------
        int
            The limit, default 0: the servers store all arrays. At most 2**22.

        Examples
        --------
        >>> ps.client_limit = 10_000
        >>> x = ps.ones(1000)
        >>> ps.counters.reset()
        >>> float(x @ x), ps.counters.messages
        (1000.0, 0)
        >>> ps.client_limit = 0
        """
        return self.graph.client_limit

    @client_limit.setter
    def client_limit(self, limit: int) -> None:
        elements = operator.index(limit)
        if not 0 <= elements <= MOST_ELEMENTS:
            raise ValueError(f"client_limit must be between 0 and {MOST_ELEMENTS}, got {limit!r}")
        self.graph.client_limit = elements

    # --- making arrays ------------------------------------------------------------------------

    def array(
        self,
        values: npt.ArrayLike,
        dtype: npt.DTypeLike | None = None,
        *,
        on_client: bool | None = None,
    ) -> DistArray:
        """Copy values to the servers, or keep a small array on the client.

        Parameters
        ----------
        values : array_like or DistArray
            Values of rank 0, 1 or 2. A number becomes a scalar that the client stores.
        dtype : dtype, optional
            Dtype of the array. Default: the dtype of ``values``.
        on_client : bool, optional
            Store the array on the client (True) or on the servers (False). Operations on arrays of
            the client and on numbers compute immediately with NumPy, and send no request. Use it
            for arrays of at most some ten thousand elements. Default: True for at most
            ``client_limit`` elements, which is 0 unless it is set.

        Returns
        -------
        DistArray
            A new array with the shape of ``values``, split over the servers by rows unless
            the client stores it.

        Raises
        ------
        TypeError
            If the servers do not support the dtype.
        NotImplementedError
            If the rank is more than 2, or if an array of more than 2**22 elements is to be stored
            on the client.

        Notes
        -----
        Eager: one request per server, but no request with ``on_client``. A ``DistArray`` of this
        session is copied lazily; from an array stored on the client the copy is on the servers, and
        from a column-partitioned one it is row-partitioned.

        Examples
        --------
        >>> x = ps.array([3.0, 4.0], on_client=True)
        >>> ps.counters.reset()
        >>> float(x @ x), ps.counters.messages
        (25.0, 0)
        """
        if on_client is None:
            on_client = self.client_limit > 0 and self.graph.keeps(np.shape(values))
        return self._keep(values, dtype) if on_client else self._put(values, dtype)

    def _put(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> DistArray:
        """``array(values, dtype, on_client=False)``."""
        if not isinstance(values, DistArray):
            return DistArray(self, put(self, values, dtype))
        check_session(self, values, "array")
        rows: DistArray = values.materialized() if values.is_split_by_columns else values
        copy = on_servers(rows)
        return copy.astype(values.dtype if dtype is None else dtype)

    def _keep(self, values: Any, dtype: Any) -> DistArray:
        """A copy of ``values`` that the client stores; of an array of ours a lazy one."""
        if isinstance(values, DistArray):
            check_session(self, values, "array")
            rows: DistArray = values.materialized() if values.is_split_by_columns else values
            kept: DistArray = express(rows, collect, rows)
            return kept.astype(kept.dtype if dtype is None else dtype)
        given = np.asarray(values, dtype)
        if given.ndim > 2:
            raise NotImplementedError(
                f"arrays have rank 0, 1 or 2, got {given.ndim}; reshape the values"
            )
        if given.size > MOST_ELEMENTS:
            raise NotImplementedError(
                f"the client stores arrays of at most {MOST_ELEMENTS} elements, got {given.size}; "
                "leave out on_client=True"
            )
        check_dtype(given.dtype)
        return DistArray(self, client_array(self.graph, given))

    def space(self, n: int, *, split: str = "rows") -> RowSplit:
        """Return a factory for tables of ``n`` rows, split across servers by rows or by columns.

        Parameters
        ----------
        n : int
            Number of rows of each table.
        split : {"rows", "columns"}, default "rows"
            How tables are partitioned. With "columns" each server stores all rows of some columns,
            which suits products of long rows.

        Returns
        -------
        RowSplit
            An object with the methods ``array``, ``zeros``, ``ones``, ``full`` and ``empty``, and
            with ``random``.

        Raises
        ------
        ValueError
            If ``split`` is another word, or ``n`` is negative.

        Examples
        --------
        >>> table = ps.space(2, split="columns").array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        >>> table.sum(axis=0).numpy()
        array([5., 7., 9.])
        """
        if split not in ("rows", "columns"):
            raise ValueError(f"split={split!r}; allowed are 'rows' and 'columns'")
        return ColumnSplit(self, n) if split == "columns" else RowSplit(self, n)

    def keys(
        self,
        among: range | None = None,
        *,
        admit: int = 1,
        sketch: int | None = None,
        most_bytes: int | None = None,
    ) -> KeyedSpace:
        """Create a keyed space: an index of int64 keys that grows as keys are written.

        Use it if features have no dense index, for example user IDs or hashed strings. A keyed
        space is a distributed hash table of vectors (an embedding table).

        Parameters
        ----------
        among : range, optional
            ``range(n)`` if the keys are 0 to n - 1. All of them exist from the start and need no
            hash table; the ``values`` of such arrays are aligned to plain arrays of length n.
            Default: any int64 key.
        admit : int, default 1
            Number of writes after which a key is inserted, 1 to 255. Earlier writes are dropped.
        sketch : int, optional
            Bytes of a sketch that counts the writes of keys that are not inserted yet. Its counts
            are approximate because of hash collisions. Default: exact counts.
        most_bytes : int, optional
            Memory limit of the space on all servers together. Default: the servers' memory.

        Returns
        -------
        KeyedSpace
            The empty space. Its ``zeros``, ``full`` and ``table`` create arrays.

        Raises
        ------
        TypeError
            If ``among`` is not ``range(n)``.
        ValueError
            If ``admit`` is out of range, or the options contradict each other.
        OutOfBudget
            Later, by a write that would exceed ``most_bytes``.

        Notes
        -----
        One request per server.

        Examples
        --------
        >>> space = ps.keys()
        >>> w = space.zeros()
        >>> w.push([17, -3, 2**40], [1.0, 2.0, 3.0])
        >>> w.pull([17, 5])
        array([1., 0.])
        """
        length = 0 if among is None else length_of_range(among)
        return KeyedSpace(self, length=length, admit=admit, sketch=sketch, most_bytes=most_bytes)

    def select(self, values: DistArray, mask: DistArray) -> Selection:
        """Return the elements of an array at which a mask is true.

        Parameters
        ----------
        values : DistArray
            An array of this session.
        mask : DistArray
            Booleans, aligned with ``values``.

        Returns
        -------
        Selection
            The selected elements; lazy. Its length is known once the mask is evaluated.
        """
        with self.holders.lock:
            return Selection(self, values.node, mask.node)

    def scatter(self, x: DistArray, indices: DistArray, values: npt.ArrayLike) -> DistArray:
        """Write values to the elements of an array at given indices.

        Parameters
        ----------
        x : DistArray
            The array to write to.
        indices : DistArray
            Integer indices on the servers.
        values : array_like or DistArray
            Values that broadcast to the shape of ``indices``.

        Returns
        -------
        DistArray
            ``x`` with the new values; lazy, but errors are raised immediately.
        """
        result: DistArray = scatter_now(x, ASSIGN, indices, values)
        return result

    def readonly_slice(self, values: DistArray) -> ReadonlySlice:
        """Return a slice as an array that cannot be assigned to.

        Parameters
        ----------
        values : DistArray
            The elements of the slice.

        Returns
        -------
        ReadonlySlice
            The same elements; lazy.
        """
        with self.holders.lock:
            return ReadonlySlice(self, values.node)

    def _transposed(self, table: DistArray) -> Transposed:
        """Return the transpose of ``table``: the same data, column-partitioned."""
        return Transposed(table)

    def full(
        self, shape: Shape, fill_value: float | np.generic, dtype: npt.DTypeLike | None = None
    ) -> DistArray:
        """Create an array filled with one value.

        Parameters
        ----------
        shape : int or tuple of int
            Shape of rank 0, 1 or 2.
        fill_value : float
            Value of all elements.
        dtype : dtype, optional
            Dtype of the array. Default: the dtype of ``fill_value``.

        Returns
        -------
        DistArray
            The array, split over the servers by rows.

        Raises
        ------
        TypeError
            If ``fill_value`` is not a scalar, or the servers do not support the dtype.
        NotImplementedError
            If the rank is more than 2.

        Notes
        -----
        Lazy: sends no request. An operation that uses the array fills it in the same pass.
        """
        if self.client_limit and self.graph.keeps(shape_of(shape)):
            element = filled(self.graph, (), fill_value, dtype).value
            return self._keep(np.full(shape_of(shape), element), None)
        return DistArray(self, filled(self.graph, shape, fill_value, dtype))

    def zeros(self, shape: Shape, dtype: npt.DTypeLike | None = None) -> DistArray:
        """Create an array filled with zeros.

        Parameters
        ----------
        shape : int or tuple of int
            Shape of rank 0, 1 or 2.
        dtype : dtype, optional
            Dtype of the array. Default: float64.

        Returns
        -------
        DistArray
            The array, split over the servers by rows.

        Notes
        -----
        Lazy: sends no request and allocates no memory until it is used.

        Examples
        --------
        >>> ps.zeros((2, 3)).numpy()
        array([[0., 0., 0.],
               [0., 0., 0.]])
        """
        return self.full(shape, 0, np.float64 if dtype is None else dtype)

    def ones(self, shape: Shape, dtype: npt.DTypeLike | None = None) -> DistArray:
        """Create an array filled with ones.

        Parameters
        ----------
        shape : int or tuple of int
            Shape of rank 0, 1 or 2.
        dtype : dtype, optional
            Dtype of the array. Default: float64.

        Returns
        -------
        DistArray
            The array, split over the servers by rows; lazy.
        """
        return self.full(shape, 1, np.float64 if dtype is None else dtype)

    def empty(self, shape: Shape, dtype: npt.DTypeLike | None = None) -> DistArray:
        """Create an array for values that are assigned later; it contains zeros.

        Parameters
        ----------
        shape : int or tuple of int
            Shape of rank 0, 1 or 2.
        dtype : dtype, optional
            Dtype of the array. Default: float64.

        Returns
        -------
        DistArray
            The same as ``zeros``: as it is lazy, it costs no more than uninitialized memory.
        """
        return self.full(shape, 0, np.float64 if dtype is None else dtype)

    def eye(
        self,
        n_rows: int,
        n_cols: int | None = None,
        /,
        *,
        k: int = 0,
        dtype: npt.DTypeLike | None = None,
    ) -> DistArray:
        """Create a table with ones on a diagonal and zeros elsewhere.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        n_cols : int, optional
            Number of columns. Default: ``n_rows``.
        k : int, default 0
            Index of the diagonal: positive above the main diagonal, negative below it.
        dtype : dtype, optional
            Dtype of the array. Default: float64.

        Returns
        -------
        DistArray
            A table of shape ``(n_rows, n_cols)``; lazy.
        """
        shape = shape_of((n_rows, n_rows if n_cols is None else n_cols))
        column = reshape(self._iota(shape[0]), (shape[0], 1))
        offset = max(-shape[0], min(k, shape[1]))  # farther away there is no diagonal
        numbers = np.arange(-offset, shape[1] - offset)
        result: DistArray = column == numbers
        return result.astype(np.float64 if dtype is None else dtype)

    def arange(
        self,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: npt.DTypeLike | None = None,
    ) -> DistArray:
        """Create evenly spaced values in ``[start, stop)``, as ``numpy.arange`` does.

        Parameters
        ----------
        start : float
            First value. If ``stop`` is not given, the interval is ``[0, start)``.
        stop : float, optional
            End of the interval, not included.
        step : float, default 1
            Distance between two values.
        dtype : dtype, optional
            Dtype of the array. Default: as NumPy's, int64 for Python integers.

        Returns
        -------
        DistArray
            A vector; lazy.

        Raises
        ------
        ZeroDivisionError
            If ``step`` is 0.
        ValueError
            If a bound or the step is not finite.
        TypeError
            If the dtype is bool and the result has more than two elements.

        Examples
        --------
        >>> ps.arange(0, 1, 0.25).numpy()
        array([0.  , 0.25, 0.5 , 0.75])
        """
        # NumPy promotes int64 with the dtypes of the arguments; numbers have the usual ones.
        kinds = [np.asarray(one).dtype for one in (start, stop, step) if one is not None]
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ZeroDivisionError("arange: step must not be 0")
        kind = check_dtype(dtype if dtype is not None else np.result_type(np.int64, *kinds))
        if not math.isfinite((stop - start) / step):
            raise ValueError(
                f"arange: start, stop and step must be finite, got {start}, {stop} and {step}"
            )
        length = length_of(max(0, math.ceil((stop - start) / step)), "length")
        if kind == np.bool_:
            return self._two_truths(length, start, step)
        # The step that NumPy takes is the difference of its first two values; of float16 it is
        # taken in float32, and so are the later steps.
        work = np.dtype(np.float32) if kind == np.float16 else kind
        first, second = kind.type(start), kind.type(start + step)
        with np.errstate(over="ignore"):
            difference = work.type(second) - work.type(first)
        result: DistArray = work.type(first) + self._iota(length).astype(work) * difference
        return result.astype(kind)

    def _two_truths(self, length: int, start: float, step: float) -> DistArray:
        """Return ``arange`` of dtype bool, which has at most two elements in NumPy."""
        if length > 2:
            raise TypeError(
                f"arange: a result of dtype bool has at most 2 elements, got {length}; "
                f"for alternating values write ps.arange(n) % 2 == 1"
            )
        return self.array(np.array([start, start + step], np.bool_)[:length])

    def linspace(
        self, start: float, stop: float, num: int = 50, *, endpoint: bool = True,
        retstep: bool = False, dtype: npt.DTypeLike | None = None,
    ) -> Any:  # fmt: skip
        """Create evenly spaced values from ``start`` to ``stop``, as ``numpy.linspace`` does.

        Parameters
        ----------
        start : float
            First value.
        stop : float
            Last value, or the end of the interval if ``endpoint`` is false.
        num : int, default 50
            Number of values.
        endpoint : bool, default True
            Whether ``stop`` is the last value.
        retstep : bool, default False
            Whether to return the step as well.
        dtype : dtype, optional
            Dtype of the array. Default: float64. Integers are rounded down.

        Returns
        -------
        DistArray or tuple of (DistArray, numpy.float64)
            A vector of length ``num``; lazy. With ``retstep`` also the distance of two values.

        Raises
        ------
        NotImplementedError
            If ``start`` or ``stop`` is an array.

        Examples
        --------
        >>> ps.linspace(0, 1, 5).numpy()
        array([0.  , 0.25, 0.5 , 0.75, 1.  ])
        """
        num = length_of(num, "num")
        if np.ndim(start) or np.ndim(stop):
            raise NotImplementedError(
                "linspace: start and stop must be numbers on the servers, got arrays; write "
                "start + (stop - start) * numpy.linspace(0, 1, num).reshape(-1, 1)"
            )
        if retstep:
            gaps = float(num - 1 if endpoint else num)
            values = self.linspace(start, stop, num, endpoint=endpoint, dtype=dtype)
            return values, np.float64((stop - start) / gaps if gaps > 0 else np.nan)
        kind = check_dtype(dtype if dtype is not None else np.float64)
        gaps = num - 1 if endpoint else num
        index = self._iota(num).astype(np.float64)
        low, high = float(start), float(stop)
        if gaps <= 0:
            return _rounded_down(index * (high - low) + low, kind)
        step = (high - low) / gaps
        values = index * step + low if step != 0 else index / float(gaps) * (high - low) + low
        if endpoint:
            values = where(index == float(num - 1), high, values)
        return _rounded_down(values, kind)

    def logspace(
        self, start: float, stop: float, num: int = 50, *, endpoint: bool = True,
        base: float = 10.0, dtype: npt.DTypeLike | None = None,
    ) -> DistArray:  # fmt: skip
        """Create powers of a base with evenly spaced exponents, as ``numpy.logspace`` does.

        Parameters
        ----------
        start : float
            First exponent.
        stop : float
            Last exponent, or the end of the interval if ``endpoint`` is false.
        num : int, default 50
            Number of values.
        endpoint : bool, default True
            Whether ``stop`` is the last exponent.
        base : float, default 10.0
            The base of the powers.
        dtype : dtype, optional
            Dtype of the array. Default: float64.

        Returns
        -------
        DistArray
            A vector of length ``num``; lazy.
        """
        low = self.array(start)
        return logspace(low, stop, num, endpoint, base, dtype)  # type: ignore[no-any-return]

    def geomspace(
        self,
        start: float,
        stop: float,
        num: int = 50,
        *,
        endpoint: bool = True,
        dtype: npt.DTypeLike | None = None,
    ) -> DistArray:
        """Create a geometric progression from ``start`` to ``stop``, as ``numpy.geomspace`` does.

        Parameters
        ----------
        start : float
            First value.
        stop : float
            Last value, or the end of the interval if ``endpoint`` is false.
        num : int, default 50
            Number of values.
        endpoint : bool, default True
            Whether ``stop`` is the last value.
        dtype : dtype, optional
            Dtype of the array. Default: float64.

        Returns
        -------
        DistArray
            A vector of length ``num``; lazy.
        """
        low = self.array(start)
        return geomspace(low, stop, num, endpoint, dtype)  # type: ignore[no-any-return]

    def _iota(self, length: int) -> DistArray:
        return DistArray(self, iota(self.graph, (length,)))

    # --- files ------------------------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        arrays: Mapping[str, Saveable] | None = None,
        /,
        *,
        metadata: Mapping[str, str] | None = None,
        optimizers: bool = True,
        progress: bool = False,
        store: Store | None = None,
        **named: Saveable,
    ) -> None:
        """Save arrays of this session under their names, as ``distvec.save`` does.

        Parameters
        ----------
        path : str or path-like
            A ``.safetensors`` or ``.npy`` file, a folder, or a URL.
        arrays : mapping of str to array, optional
            Arrays by names that need not be keywords.
        metadata : mapping of str to str, optional
            Strings to save beside the arrays.
        optimizers : bool, default True
            Whether to save the optimizers of keyed arrays with their states.
        progress : bool, default False
            Whether to show a progress bar.
        store : Store, optional
            A storage class of your own for ``path``.
        **named : array
            Arrays by name.

        See Also
        --------
        distvec.save : Describes the files, their cost, and the errors.

        Examples
        --------
        >>> ps.save("model.safetensors", w=ps.array([1.0, 2.0]))
        >>> ps.load("model.safetensors")["w"].numpy()
        array([1., 2.])
        """
        save(
            path, arrays, metadata=metadata, optimizers=optimizers, progress=progress, store=store,
            **named,
        )  # fmt: skip

    def load(
        self,
        path: str | os.PathLike[str],
        *,
        names: Iterable[str] | None = None,
        progress: bool = False,
        store: Store | None = None,
    ) -> Loaded:
        """Load saved arrays into this session, as ``distvec.load`` does.

        Parameters
        ----------
        path : str or path-like
            A ``.safetensors`` or ``.npy`` file, a folder, or a URL.
        names : iterable of str, optional
            Names of the arrays to load. Default: all.
        progress : bool, default False
            Whether to show a progress bar.
        store : Store, optional
            A storage class of your own for ``path``.

        Returns
        -------
        Loaded
            A dict of the arrays by name; its ``metadata`` has the saved strings.

        See Also
        --------
        distvec.load : Describes the files, their cost, and the errors.
        """
        return load(path, self, names=names, progress=progress, store=store)

    @cached_property
    def namespace(self) -> Namespace:
        """Return the array API namespace that creates its arrays in this session.

        Returns
        -------
        Namespace
            The namespace: ``ps.namespace.zeros(3)`` is ``ps.zeros(3)``.
        """
        found = Namespace(self)
        found.value_and_grad, found.hessian_product = value_and_grad, hessian_product
        found.keeper = partial(self.durability.keeper, self)
        return found

    # --- beyond the life of a session ------------------------------------------------------------

    @overload
    def checkpoint(
        self,
        directory: Directory = ...,
        /,
        *,
        wait: Literal[True] = ...,
        document: Any = ...,
        **arrays: DistArray | KeyedArray,
    ) -> Checkpoint: ...
    @overload
    def checkpoint(
        self,
        directory: Directory = ...,
        /,
        *,
        wait: Literal[False],
        document: Any = ...,
        **arrays: DistArray | KeyedArray,
    ) -> Future[Checkpoint]: ...
    def checkpoint(
        self,
        directory: Directory = None,
        /,
        *,
        wait: bool = True,
        document: Any = None,
        **arrays: DistArray | KeyedArray,
    ) -> Checkpoint | Future[Checkpoint]:
        """Write all arrays of the session to files, as they are now.

        Parameters
        ----------
        directory : str or path-like, optional
            A path that all servers can reach, or a URL. Default: the session's ``checkpoint=``.
        wait : bool, default True
            Whether to return only when the files are written. Otherwise the servers write them
            while work continues.
        document : object, optional
            Data that JSON can hold, saved beside the arrays.
        **arrays : DistArray or KeyedArray
            Arrays by name. ``restore`` returns them by these names, also in a new session with
            another number of servers.

        Returns
        -------
        Checkpoint or Future of Checkpoint
            Path, number of arrays, bytes written and seconds. With ``wait=False`` a future, as soon
            as later changes of the arrays can no longer change the checkpoint.

        Raises
        ------
        ValueError
            If there is no ``directory``, and the session was opened without ``checkpoint=``.
        StoreFailed
            If the files cannot be written.
        OutOfBudget
            If a server has no memory for its copy of a keyed space.
        ServerLost
            If a server does not answer.

        Notes
        -----
        Three requests per server. Arrays that the last checkpoint contains are not written again.
        The files are synced to disk and read back. Then older checkpoints are removed; the newest
        one and the one before it stay.

        Examples
        --------
        >>> done = ps.checkpoint("run1", w=ps.array([1.0, 2.0]))
        >>> ps.restore("run1")["w"].numpy()
        array([1., 2.])
        """
        checkpoints = self.durability.checkpoints(self, directory)
        write = checkpoints.write if wait else checkpoints.begin
        return write(0, arrays, document)

    def restore(self, directory: Directory = None, /) -> Restored:
        """Load the newest complete checkpoint.

        Parameters
        ----------
        directory : str or path-like, optional
            The directory of ``checkpoint``. Default: the session's ``checkpoint=``.

        Returns
        -------
        Restored
            The named arrays, as ``restored["w"]``; its ``document`` has the saved data.

        Raises
        ------
        CheckpointIncomplete
            If the directory has no complete checkpoint.
        Corrupted
            If the files are damaged, and no older checkpoint is complete.
        StoreFailed
            If the files cannot be read.
        OutOfBudget
            If a server has too little memory for the arrays.

        Notes
        -----
        In the session that wrote the checkpoint, all its other arrays also get back their values
        on servers that were replaced. Arrays created after the checkpoint that were on a lost
        server cannot be recovered. Keyed spaces return to the checkpoint on all servers; in another
        session, new spaces are created for the named arrays. Each server reads its own rows and
        verifies their checksums. If the newest checkpoint is damaged, the one before it is loaded,
        with a ``NotDurable`` warning.
        """
        checkpoints = self.durability.checkpoints(self, directory)
        found = checkpoints.restore()
        if found is None:
            raise CheckpointIncomplete(f"{checkpoints.store.url} contains no checkpoint")
        if self.durability.replays:  # the files that were read may be gone when they are needed
            self.durability.checkpoints(self).write(0, {})
        return found

    def resize(self, servers: int | str | Sequence[str], *, checkpoint: Directory = None) -> None:
        """Move all arrays to more, fewer or other servers.

        Arrays, keyed arrays and pending expressions stay valid, and later results are bitwise
        identical to those without the call. If it raises an error, the session is unchanged.

        Parameters
        ----------
        servers : int or str or sequence of str
            For a session of ``local``, the number of servers: new ones are started, and the former
            ones stop. For a session of ``connect``, the addresses of all servers that are to hold
            the arrays; some of them may be servers of now.
        checkpoint : str or path-like, optional
            Directory or URL through which the arrays move. All servers must reach it. Default: the
            session's ``checkpoint=``, and for ``local`` without that a temporary directory.

        Raises
        ------
        PSError
            If the session has a name or was opened otherwise, if another thread changed an array
            meanwhile, or if a pending operation, which must be computed first, fails.
        ValueError
            If a session of ``connect`` has no ``checkpoint``.
        OutOfBudget
            If the servers have too little memory. A server that is to hold arrays before and after
            needs memory for both.
        StoreFailed
            If the files cannot be written or read.
        NotImplementedError
            For a keyed space with ``sketch=``.

        Notes
        -----
        The servers write a checkpoint, and the other servers read it: each array is written and
        read once. Files in a directory for this call alone are removed. Other threads must not use
        the session meanwhile.

        Examples
        --------
        >>> with dv.local(2, in_process=True) as session:
        ...     x = session.arange(5.0)
        ...     session.resize(3)
        ...     print(session.client.servers, x.numpy())
        3 [0. 1. 2. 3. 4.]
        """
        if self._opener is None:
            raise PSError(
                "only sessions of dv.local(), dv.connect() and PSContext.get_or_create() can be "
                "resized; save the arrays and load them in another session: dv.save(path, w=w), "
                "dv.load(path, session)"
            )
        if self.names.title is not None:
            raise PSError(
                "a session with a name cannot be resized, as drivers find it on its servers; open "
                "it without name=, or save the arrays and load them in another session"
            )
        opener, unused, before = self._opener, None, self.client.session

        def begin() -> Client:
            nonlocal unused
            client, unused = opener.open(servers, self.client)
            return client

        admit = warn_of_other_bits(self.client) if self._replay is None else self._replay.admit
        try:
            with checkpoints_for(self, self.durability, checkpoint, opener.has_disk) as between:
                resize(self, between, begin, admit)
        finally:
            if self.client.session != before:
                self._owner, unused = unused, self._owner
                for one in self.durability.directories:
                    one.forget_spaces()
            if unused is not None:
                unused.stop()

    def dashboard(self, *, port: int = 0, allowed_hosts: Iterable[str] = ()) -> Dashboard:
        """Show this session and its servers on a web page while they work.

        Parameters
        ----------
        port : int, default 0
            Port of the page on this machine's loopback address; 0 selects a free port.
        allowed_hosts : iterable of str, optional
            Further host names that may be in the browser's address, such as the name of a proxy.

        Returns
        -------
        Dashboard
            The page. Its ``url`` is the link; printing the object shows it.

        Raises
        ------
        OSError
            If the port is taken.

        Notes
        -----
        While a browser shows the page, one status request per second goes to each server, and
        each evaluation is measured by line of code. A second call returns the same page. The page
        ends with the session; ``close`` ends it before.

        Examples
        --------
        >>> with dv.local(2, in_process=True) as session:
        ...     page = session.dashboard()
        ...     print(page.url.startswith("http://127.0.0.1:"))
        True
        """
        if self._closed:
            raise PSError("the session is closed: it has no dashboard; open another session")
        if self._dashboard is None or self._dashboard.is_closed:
            self._dashboard = open_for_session(
                self, self.durability, port=port, allowed_hosts=tuple(allowed_hosts)
            )
        return self._dashboard

    @property
    def leaving(self) -> dict[str, float]:
        """Servers that were told to end, and the seconds until each will be gone.

        A server that gets SIGTERM serves its open sessions for ``distvec serve --grace`` seconds.
        Use this property in a long loop to save in time.

        Returns
        -------
        dict
            Seconds by address; empty if all servers stay, as far as their last replies say.

        Examples
        --------
        >>> if ps.leaving:
        ...     ps.checkpoint("run1")
        """
        return self.client.leaving

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the dashboard with its present state to an HTML file.

        Parameters
        ----------
        path : str or path-like
            The file. It opens from disk in any browser, without a server or a network.

        Notes
        -----
        It shows runs and lines of code since the dashboard was opened. Without a dashboard it shows
        the arrays and the servers. One request per server. The file holds no token.

        Examples
        --------
        >>> ps.report("run.html")
        """
        is_open = self._dashboard is not None and not self._dashboard.is_closed
        page = self.dashboard()
        try:
            page.report(path)
        finally:
            if not is_open:
                page.close()

    def publish(self, **arrays: DistArray | None) -> None:
        """Give arrays names, so that the next driver finds them if this process dies.

        Parameters
        ----------
        **arrays : DistArray or None
            Arrays by name. ``None`` removes a name.

        Raises
        ------
        PSError
            If the session has no name.
        TypeError
            If an array is a scalar, which the client stores.

        Notes
        -----
        The arrays are evaluated, and their current values are published: all names on all servers,
        or no name on any. One request per server and no copy; a published array keeps its memory.

        Examples
        --------
        >>> with dv.connect(addresses, token=token, name="run7") as session:
        ...     session.publish(w=session.array([1.0, 2.0]))
        ...     print(list(session.names))
        ['w']
        """
        self.names.publish(arrays)

    def __getitem__(self, name: str) -> DistArray:
        """Return the array that was published under ``name``; ``KeyError`` lists the names."""
        return self.names[name]

    def detach(self) -> None:
        """Close this connection but keep the session, so that another process can attach to it.

        The arrays stay on the servers for the session's lease. Calling it twice is allowed.

        Raises
        ------
        PSError
            If the session has no name.
        """
        if self.names.title is None:
            raise PSError(
                "detach() needs a session with a name, as another process finds it by that: open "
                "it with distvec.connect(addresses, token=..., name='run7'), or call close()"
            )
        if not self._closed:
            self._closed = True
            if self._dashboard is not None:
                self._dashboard.close()
            self.durability.end()
            self.client.close(leave=True)

    def close(self) -> None:
        """Free the arrays of the session, and stop the servers that it started.

        Calling it twice is allowed.
        """
        if self._closed:
            return
        self._closed = True
        if self._dashboard is not None:
            self._dashboard.close()
        try:
            self.durability.end()
            self.client.close()
        finally:
            if self._owner is not None:
                self._owner.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                error_hints.session_hint(name, shared_names()), name=name, obj=self
            )

    def _repr_html_(self) -> str:
        return table(repr(self), summary(self))

    def __repr__(self) -> str:
        named = self.names.title or self.client.session[:8]
        return f"<Session {named} on {self.client.servers} servers>"


def _rounded_down(values: DistArray, kind: np.dtype[Any]) -> DistArray:
    """Cast floats to ``kind``, rounding down if it is a dtype of integers."""
    whole: DistArray = apply("floor", values) if kind.kind in "iu" else values
    return whole.astype(kind)
