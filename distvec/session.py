"""A session: one client's connection, the arrays it made, and when they are evaluated."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, overload

import numpy as np

from distvec.array import error_hints
from distvec.array.array import DistArray, ReadonlySlice
from distvec.array.collectives.core import scatter_now
from distvec.array.column_split import ColumnSplit, RowSplit, Transposed
from distvec.array.core.handle import SessionBase, check_session
from distvec.array.core.shapes import filled, length_of, on_servers, put, reshape, shape_of, type_of
from distvec.array.dispatch.array_api import Namespace, shared_names
from distvec.array.elementwise import apply, where
from distvec.array.random import Random
from distvec.array.repr import summary, table
from distvec.array.selection import Selection
from distvec.array.sequences import geomspace, logspace
from distvec.autodiff.functions import hessian_product, value_and_grad
from distvec.durability.checkpoints import Checkpoint, Restored
from distvec.durability.load import Loaded, load
from distvec.durability.policy import Durability
from distvec.durability.published_names import Names
from distvec.durability.save import save
from distvec.graph.build import check_dtype
from distvec.keyed.array import KeyedArray
from distvec.keyed.row_call import length_of_range
from distvec.keyed.space import KeyedSpace
from ps_backend.client import Client
from ps_backend.errors import CheckpointIncomplete, PSError
from ps_backend.program.collectives import ASSIGN

Directory: TypeAlias = str | os.PathLike[str] | None
"""Where checkpoints lie: a path that all servers see, or a URL; None: where the session says."""


class Session(SessionBase):
    """Arrays on the servers of one cluster. Two sessions in one process do not know each other.

    Close it, or use it as a context manager: closing frees its arrays and stops the servers that it
    started itself. ``counters`` tells what everything has cost so far.
    """

    def __init__(
        self,
        client: Client,
        *,
        owner: Any = None,
        durability: Durability | None = None,
        name: str | None = None,
    ) -> None:
        """``owner`` is stopped when the session closes, if it has a ``stop()``.

        ``name``: by which others may take it over.
        """
        if not isinstance(client, Client):
            raise TypeError(
                f"a Session needs a Client, got {type(client).__name__}; "
                f"open one by distvec.local() or distvec.connect('host:port')"
            )
        super().__init__(client)
        self.durability = Durability() if durability is None else durability
        """What it survives: its level, and where its checkpoints lie."""
        self.names = Names(self, name)
        """Those of arrays that were published: ``list(ps.names)``, ``ps["w"]``."""
        self.random = Random(self)
        self._owner = owner
        self._closed = False

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} holds this process's connections and cannot be pickled; "
            "in Spark tasks use what 'with ps.share(x) as w' or 'with ps.round(x) as r' give, or "
            "run(train, rdd, x); another process connects by itself: dv.connect(addresses, token=)"
        )

    @property
    def cancellation_limit(self) -> float:
        """How far an expanded inner product may cancel before it is computed directly.

        The sum of its terms' magnitudes over its own: at the default of 1e4 it has four digits less
        than float64 can hold. ``inf`` switches the guard off; below 1 nothing is expanded.
        """
        return self.planner.cancellation_limit

    @cancellation_limit.setter
    def cancellation_limit(self, limit: float) -> None:
        if not limit >= 0:
            raise ValueError(f"cancellation_limit must be 0 or more, got {limit!r}")
        self.planner.cancellation_limit = limit

    # --- making arrays ------------------------------------------------------------------------

    def array(self, values: Any, dtype: Any = None) -> DistArray:
        """A copy of ``values`` (rank 0, 1 or 2) on the servers. One message per server, at once.

        Of an array of this session a lazy copy; of one that the client keeps, one on the servers;
        of one that is split by columns, one that is split by rows.
        """
        if not isinstance(values, DistArray):
            return DistArray(self, put(self, values, dtype))
        check_session(self, values, "array")
        rows: DistArray = values.materialized() if values.is_split_by_columns else values
        copy = on_servers(rows)
        return copy.astype(values.dtype if dtype is None else dtype)

    def space(self, n: int, *, split: str = "rows") -> RowSplit:
        """What makes tables of ``n`` rows, by ``array``, ``zeros``, ``ones``, ``full``, ``random``.

            table = ps.space(100, split="columns").array(values)

        ``split``: by "rows", as the session's own functions do; or by "columns", for products of
        long rows, where each server has all rows of some columns.
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
        """A keyed space: what makes vectors and tables over int64 keys that nobody numbered.

            space = ps.keys()
            w = space.zeros()
            w.push([17, -3, 2**40], [1.0, 2.0, 3.0])

        ``among``: ``range(n)``, of keys that are numbered, all of them there from the start: they
        need no table, and their arrays, as ``values``, are aligned to plain ones of length n.
        ``admit``: with how many changes a key is inserted, up to 255: before, they are dropped, and
        counted exactly, or in ``sketch`` bytes, which takes some keys for others. ``most_bytes``:
        what it may take on all servers; what would exceed this raises ``OutOfBudget``. One message
        a server.
        """
        length = 0 if among is None else length_of_range(among)
        return KeyedSpace(self, length=length, admit=admit, sketch=sketch, most_bytes=most_bytes)

    def select(self, values: DistArray, mask: DistArray) -> Selection:
        """As ``Home.select``."""
        with self.holders.lock:
            return Selection(self, values.node, mask.node)

    def scatter(self, x: DistArray, indices: DistArray, values: Any) -> DistArray:
        """As ``Home.scatter``."""
        result: DistArray = scatter_now(x, ASSIGN, indices, values)
        return result

    def readonly_slice(self, values: DistArray) -> ReadonlySlice:
        """As ``Home.window``."""
        with self.holders.lock:
            return ReadonlySlice(self, values.node)

    def _transposed(self, table: DistArray) -> Transposed:
        """As ``SessionBase._transposed``."""
        return Transposed(table)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> DistArray:
        """``fill_value`` everywhere. Lazy: costs nothing until it is used, and little then."""
        return DistArray(self, filled(self.graph, shape, fill_value, dtype))

    def zeros(self, shape: Any, dtype: Any = None) -> DistArray:
        """Zeros; lazy as ``full``."""
        return self.full(shape, 0, np.float64 if dtype is None else dtype)

    def ones(self, shape: Any, dtype: Any = None) -> DistArray:
        """Ones; lazy as ``full``."""
        return self.full(shape, 1, np.float64 if dtype is None else dtype)

    def empty(self, shape: Any, dtype: Any = None) -> DistArray:
        """Zeros: lazily made, they cost no more than memory without values."""
        return self.full(shape, 0, np.float64 if dtype is None else dtype)

    def eye(
        self, n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None
    ) -> DistArray:
        """A table with ones on its ``k``-th diagonal; lazy as ``full``."""
        shape = shape_of((n_rows, n_rows if n_cols is None else n_cols))
        column = reshape(self._iota(shape[0]), (shape[0], 1))
        offset = max(-shape[0], min(k, shape[1]))  # farther away there is no diagonal
        numbers = np.arange(-offset, shape[1] - offset)
        result: DistArray = column == numbers
        return result.astype(np.float64 if dtype is None else dtype)

    def arange(
        self, start: float, stop: float | None = None, step: float = 1, dtype: Any = None
    ) -> DistArray:
        """Evenly spaced values in ``[start, stop)``, as ``numpy.arange``; lazy."""
        # As NumPy's: int64 and the dtypes of what was given; numbers of Python have the usual ones.
        kinds = [np.asarray(one).dtype for one in (start, stop, step) if one is not None]
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ZeroDivisionError("arange: step must not be 0")
        kind = check_dtype(dtype if dtype is not None else np.result_type(np.int64, *kinds))
        if not math.isfinite((stop - start) / step):
            raise ValueError(f"arange: needs finite numbers, got {start}, {stop} and {step}")
        length = length_of(max(0, math.ceil((stop - start) / step)), "length")
        if kind == np.bool_:
            return self._two_truths(length, start, step)
        # The step that NumPy takes is the difference of its first two values; of float16 it is
        # taken in float32, and so is what follows.
        work = np.dtype(np.float32) if kind == np.float16 else kind
        first, second = kind.type(start), kind.type(start + step)
        with np.errstate(over="ignore"):
            difference = work.type(second) - work.type(first)
        result: DistArray = work.type(first) + self._iota(length).astype(work) * difference
        return result.astype(kind)

    def _two_truths(self, length: int, start: float, step: float) -> DistArray:
        """``arange`` of booleans, of which NumPy makes two at most."""
        if length > 2:
            raise TypeError(
                f"arange: of dtype bool at most 2 elements are made, not {length}; "
                f"for True and False in turn write ps.arange(n) % 2 == 1"
            )
        return self.array(np.array([start, start + step], np.bool_)[:length])

    def linspace(
        self, start: float, stop: float, num: int = 50, *, endpoint: bool = True,
        retstep: bool = False, dtype: Any = None,
    ) -> Any:  # fmt: skip
        """``num`` evenly spaced values from ``start`` to ``stop``, as ``numpy.linspace``; lazy.

        With ``retstep`` the step as well, a number.
        """
        num = length_of(num, "num")
        if np.ndim(start) or np.ndim(stop):
            raise NotImplementedError(
                "linspace: between arrays of numbers is not available on the servers; write "
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
        base: float = 10.0, dtype: Any = None,
    ) -> DistArray:  # fmt: skip
        """Powers of ``base`` with ``num`` evenly spaced exponents, as ``numpy.logspace``; lazy."""
        low = self.array(start)
        return logspace(low, stop, num, endpoint, base, dtype)  # type: ignore[no-any-return]

    def geomspace(
        self, start: float, stop: float, num: int = 50, *, endpoint: bool = True, dtype: Any = None
    ) -> DistArray:
        """``num`` numbers, each the same multiple of the last, as ``numpy.geomspace``; lazy."""
        low = self.array(start)
        return geomspace(low, stop, num, endpoint, dtype)  # type: ignore[no-any-return]

    def _iota(self, length: int) -> DistArray:
        node = self.graph.make("iota", (), type_of((length,), np.dtype(np.int64)))
        return DistArray(self, node)

    # --- files ------------------------------------------------------------------------------------

    def save(
        self, path: str | os.PathLike[str], arrays: Mapping[str, Any] | None = None, /, **named: Any
    ) -> None:
        """As ``distvec.save``: arrays of this session, and its options by their names."""
        save(path, arrays, **named)

    def load(self, path: str | os.PathLike[str], **options: Any) -> Loaded:
        """As ``distvec.load``: what was saved, on the servers of this session."""
        return load(path, self, **options)

    @cached_property
    def namespace(self) -> Namespace:
        """The array API namespace whose creation functions put arrays into this session."""
        found = Namespace(self)
        found.value_and_grad, found.hessian_product = value_and_grad, hessian_product
        found.keeper = partial(self.durability.keeper, self)
        return found

    # --- what outlives the session --------------------------------------------------------------

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
        """Keep all arrays of the session, as they are now, in files of the servers.

            ps.checkpoint("/shared/run1", w=w)      # later, maybe in another process:
            w = ps.restore("/shared/run1")["w"]

        ``arrays`` get names, by which ``restore`` gives them in a new session, with any number of
        servers. In this session it brings back, after a loss, whatever its arrays stood for. Of
        keyed spaces servers make copies, each at one moment: ``OutOfBudget`` without room for them.
        ``directory``: a path that all servers see, or a URL; that of the session if not given.
        ``document``: what JSON can hold, to go along. Only what the checkpoint before has not is
        written, and when this returns it is on the disk and was read back; then older ones but the
        last are removed. With ``wait=False`` it returns a future as soon as the values are safe
        from change, and they are written while work goes on. Three messages a server. Raises
        ``StoreFailed``, ``ServerLost``.
        """
        checkpoints = self.durability.checkpoints(self, directory)
        writing = checkpoints.begin(0, arrays, document)
        if not wait:
            return writing
        try:
            return writing.result()
        finally:  # the error's traceback has ``arrays``: a future that is kept would keep them, too
            checkpoints.settle()
            del writing

    def restore(self, directory: Directory = None, /) -> Restored:
        """Bring back the newest whole checkpoint in ``directory``; its arrays by name.

        In the session that wrote it: also what other arrays stood for then, on servers that have
        lost it; what was made later, and lost, stays lost. Keyed spaces are what they were then, on
        all servers; of other sessions new ones are made, of the arrays with names. Each server
        reads its own rows, and checks them. Raises ``CheckpointIncomplete`` if there is none,
        ``Corrupted``, ``StoreFailed``, ``OutOfBudget``.
        """
        checkpoints = self.durability.checkpoints(self, directory)
        found = checkpoints.restore()
        if found is None:
            raise CheckpointIncomplete(f"{checkpoints.store.url} holds no checkpoint")
        return found

    def publish(self, **arrays: DistArray | None) -> None:
        """Give arrays names, by which the next driver finds them if this process dies.

            with dv.connect(addresses, token=token, name="run7") as ps:
                ps.publish(w=w)
            ps = dv.attach("run7", addresses, token=token)   # later, another process
            w = ps["w"]

        The values of now, which are computed first; all names at once, on all servers or on none.
        None takes a name away. One message a server, and no copy: what has a name keeps its memory.
        """
        self.names.publish(arrays)

    def __getitem__(self, name: str) -> DistArray:
        """The array that was published under ``name``; ``KeyError`` lists the names."""
        return self.names[name]

    def detach(self) -> None:
        """Let go of a session with a name, and leave its arrays to who attaches to it in time.

        They live for the session's ``lease``. Repeating it does nothing.
        """
        if self.names.title is None:
            raise PSError("nobody could find a session without a name again; close() ends it")
        if not self._closed:
            self._closed = True
            self.durability.end()
            self.client.close(leave=True)

    def close(self) -> None:
        """Free the session's arrays and stop the servers it started. Repeating it does nothing."""
        if self._closed:
            return
        self._closed = True
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
    """Floats in ``kind``, where that is one of integers the next smaller ones."""
    whole: DistArray = apply("floor", values) if kind.kind in "iu" else values
    return whole.astype(kind)
