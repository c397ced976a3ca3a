"""One array of a keyed space: rows of chosen keys, and all of it as a plain array."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.array.array import DistArray
from distvec.array.core.handle import Handle
from distvec.array.core.handle import SessionBase as Session
from distvec.diagnostics.profile import measured
from distvec.keyed.row_call import chosen_wire
from distvec.keyed.row_view import RowView
from ps_backend.client import KeyBatch, KeySpace, KeyView
from ps_backend.errors import PSError
from ps_backend.program.initializers import Fill
from ps_backend.program.keys import check_keys, hash_texts, hash_tuples
from ps_backend.program.row_program import RowProgram
from ps_backend.program.types import Row, ValueType

if TYPE_CHECKING:
    from distvec.keyed.training import KeptTraining, Training
    from distvec.rows.optimizers import RowOptimizer

Result = TypeVar("Result")


def in_background(work: Callable[[], Result]) -> Future[Result]:
    """What ``work`` returns, or raises, in a thread of its own, which does not keep Python alive.

    (Those of an executor would, and would outlive the session that they work for.)
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by who asks for the result
            future.set_exception(error)

    threading.Thread(target=run, name="distvec-prefetch", daemon=True).start()
    return future


Keys = npt.NDArray[np.int64]


def as_keys(given: Any) -> Keys:
    """The int64 keys that ``given`` are, in its order; shape ``(n,)``.

    Integers are keys themselves: an array, a list, a pandas or Arrow column, an array on the
    servers, which is read (one message). Strings, and tuples of strings and integers, become 64-bit
    hashes. ``TypeError`` for anything else, ``ValueError`` for what is not one list.
    """
    if isinstance(given, Handle):
        given = np.asarray(given)
    if isinstance(given, str | bytes | int):
        raise TypeError(f"keys must be a list or an array, got {given!r}; write [{given!r}]")
    first = _first(given)
    try:
        if isinstance(first, str):
            return hash_texts(given)
        if isinstance(first, tuple):
            return hash_tuples(given)
        return check_keys(given)
    except TypeError as error:
        raise TypeError(_wrong_kind(given) or str(error)) from None


def length_of_range(keys: Any) -> int:
    """The n of ``range(n)``; ``TypeError`` for anything else, ``ValueError`` for an empty one."""
    if not isinstance(keys, range) or (keys.start, keys.step) != (0, 1):
        raise TypeError(f"ps.keys takes range(n), for keys 0 to n - 1, or nothing, got {keys!r}")
    if not keys:
        raise ValueError("ps.keys(range(0)) would have no keys; leave the range out for any keys")
    return len(keys)


_KINDS = {"an integer": int | np.integer, "a string": str, "a tuple": tuple}


def _wrong_kind(given: Any) -> str:
    """What is said of a list with keys of several kinds, or of none that keys have."""
    if isinstance(given, np.ndarray):
        given = given.tolist() if given.dtype == object and given.ndim == 1 else None
    if not isinstance(given, list | tuple):
        return ""
    kinds = list(map(_kind, given))
    wrong = next(
        (k for k, kind in enumerate(kinds) if kind != kinds[0] or kind not in _KINDS), None
    )
    if wrong is None:
        return ""
    beside = f", and keys[0] is {given[0]!r}, {kinds[0]}" if wrong else ""
    return (
        f"keys[{wrong}] is {given[wrong]!r}, {kinds[wrong]}{beside}; keys are integers, strings, "
        "or tuples of these, all of one kind: write for instance [str(key) for key in keys]"
    )


def _kind(key: Any) -> str:
    found = (name for name, kinds in _KINDS.items() if isinstance(key, kinds))
    return next(found, f"a {type(key).__name__}")


def _first(given: Any) -> Any:
    """The first key of a list of any objects; None of an array of numbers."""
    if isinstance(given, np.ndarray) and given.dtype.kind != "O":
        return given.item(0) if given.dtype.kind == "U" and given.size else None
    return next(iter(given), None) if hasattr(given, "__iter__") else None


Missing = Literal["init", "raise"] | float
_MOST_NAMED = 5


class Home(Protocol):
    """A keyed space, as its arrays know it."""

    session: Session
    remote: KeySpace
    number: int
    arrays: weakref.WeakValueDictionary[int, KeyedArray]

    def __len__(self) -> int: ...

    def array(self, row: Row, fill: Fill, dtype: Any) -> Any:
        """Another array of the space."""

    def frozen(self, *arrays: KeyedArray | None) -> list[DistArray]:
        """Arrays as they are at one moment, as plain ones."""

    def assign(self, array: KeyedArray, values: Any) -> None:
        """Let ``array`` have ``values`` for all keys."""


class KeyedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A vector, or a table, over the keys of a space. Made by the methods of that.

        w.push(keys, -0.1 * gradients)      # add to rows; keys that are new begin with their init
        rows = t.pull(keys)

    In expressions it stands for ``values``, which is read when the expression is built:
    ``float(w @ w)``, ``w.assign(w - lr * g / np.sqrt(s))``, ``w += g``.
    """

    def __init__(self, space: Home, number: int, type: ValueType, init: Fill) -> None:
        self.space = space
        self.number = number
        self.type = type
        """Dtype and shape of a row."""
        self.init = init
        """What a key begins with."""
        self._wire = ""
        self._training: Training | None = None
        self._kept: KeptTraining | None = None
        """What a file said of its training, until that is needed."""
        space.arrays[number] = self
        self._free = weakref.finalize(self, space.session.client.free, [number])
        self._free.atexit = False

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process, as in a task, is of the same array; it frees nothing."""
        return {name: value for name, value in vars(self).items() if name != "_free"}

    def over(self, remote: KeySpace) -> Self:
        """A copy, in a task, whose row programs go to ``remote``; steps of its optimizer, too."""
        other = copy.copy(self)
        other.space = copy.copy(self.space)
        other.space.remote = remote
        if self._training is not None:
            other._training = self._training.over(other.space)
        return other

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return np.dtype(self.type.dtype)

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of one row: ``()`` of a vector, ``(k,)`` of a table."""
        return self.type.row

    @property
    def wire(self) -> str | None:
        """How rows travel that are pulled, pushed, or assigned: "float32", "float16", "int8", or
        None for as they are.

        Off unless it is set; ``wire=`` of a call goes before it. What is pushed is rounded up or
        down at random, so that the mean of many pushes is right; a repeat has the same bits. "int8"
        is of tables: a quarter of float32, with one scale for each row (and 256 columns). NaN and
        infinities arrive as they are; a number too large for the wire arrives as an infinity.
        ``ps.counters.bytes_saved`` counts.
        """
        return self._wire or None

    @wire.setter
    def wire(self, kind: str | None) -> None:
        self._wire = chosen_wire(kind, self.row)

    def _wire_of(self, kind: str | None) -> str:
        """How rows of one call travel."""
        return self._wire if kind is None else chosen_wire(kind, self.row)

    def __len__(self) -> int:
        return len(self.space)

    # --- rows of keys -----------------------------------------------------------------------------

    def pull(
        self,
        keys: Any,
        *,
        missing: Missing = "init",
        return_found: bool = False,
        wire: str | None = None,
    ) -> Any:
        """The rows of ``keys``, shape ``(n, *row)``; keys may repeat. One message to each holder.

        ``missing``: what a key that is not there reads as: "init", the value it would begin with;
        a number, everywhere in its row; or "raise", a ``KeyError`` that names some of them. With
        ``return_found`` also booleans of shape ``(n,)``: was it there? ``wire``: how rows travel,
        this time: "float32", "float16", "int8", "off"; else as the array's ``wire`` says.
        """
        return self.pull_batch(KeyBatch.of(as_keys(keys)), None, missing, return_found, wire)

    def prefetch(
        self, keys: Any, *, missing: Missing = "init", wire: str | None = None
    ) -> Future[npt.NDArray[Any]]:
        """``pull`` in another thread: ``result()`` of what it returns are the rows.

            ahead = t.prefetch(first)
            for keys in batches:
                rows, ahead = ahead.result(), t.prefetch(next_keys)
                ...  # compute with the rows while the next ones come

        They are rows as of when the servers answer: a push meanwhile may be in them or not.
        """
        batch = KeyBatch.of(as_keys(keys))
        return in_background(lambda: self.pull_batch(batch, None, missing, False, wire))

    def push(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """Add ``values`` to the rows of ``keys``. One message to each holder.

        ``values``: shape ``(n, *row)``, or what broadcasts to that. Those of a key that repeats are
        added up first, in their order. Keys that are not there begin with their initial values.
        ``wire``: how rows travel, as of ``pull``; narrowed ones are rounded up or down at random.
        Raises ``OutOfBudget`` where a server has no room for new keys: its ``refused`` are the keys
        of which nothing was changed.
        """
        self.scatter_batch(KeyBatch.of(as_keys(keys)), None, values, "add", wire)

    def assign(self, *given: Any, wire: str | None = None) -> None:
        """``assign(keys, values)``: let the rows of ``keys`` be ``values``, as of ``push``.

        Of a key that repeats the last one counts.

        ``assign(values)``: let all rows be those of an expression over arrays of the space. One
        message that computes it, one that writes it; no row travels.
        """
        if len(given) == 1:
            if wire is not None:
                raise TypeError("wire= is of rows that travel: assign(keys, values, wire=)")
            self.space.assign(self, given[0])
        else:
            keys, values = given
            self.scatter_batch(KeyBatch.of(as_keys(keys)), None, values, "replace", wire)

    def minimum(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """Let rows be the smaller of what they are and of ``values``, as of ``push``."""
        self.scatter_batch(KeyBatch.of(as_keys(keys)), None, values, "min", wire)

    def maximum(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """Let rows be the larger of what they are and of ``values``, as of ``push``."""
        self.scatter_batch(KeyBatch.of(as_keys(keys)), None, values, "max", wire)

    # --- steps by gradients -----------------------------------------------------------------------

    def optimizer(
        self, optimizer: RowOptimizer, *, restart: bool = False
    ) -> Mapping[str, KeyedArray]:
        """Let ``step`` use ``optimizer`` from now on.

        Parameters
        ----------
        optimizer : RowOptimizer
            As ``dv.rows.adagrad(0.05)``.
        restart : bool, default False
            Begin with new states, and count steps from 0, if the array has an optimizer already.
            Otherwise the array keeps its states, for instance those of a checkpoint, and continues
            with the parameters of ``optimizer``.

        Returns
        -------
        Mapping[str, KeyedArray]
            The states by name. They are arrays of the space beside this one, so keys are inserted
            and evicted in all of them together.

        Raises
        ------
        TypeError
            If this is no row optimizer, or the array is not of floats.
        ValueError
            If the array has the states of another optimizer, and ``restart`` is not given.

        Notes
        -----
        New states take one message a server each.
        """
        from distvec.keyed.training import Training  # `optim` imports SciPy's: tasks need it not
        from distvec.rows.optimizers import RowOptimizer

        if not isinstance(optimizer, RowOptimizer):
            raise TypeError(f"{optimizer!r} is no row optimizer; give one: dv.rows.adagrad(0.05)")
        self._training = Training(self.space, self, optimizer, None if restart else self.trained)
        self._kept = None
        return self._training.states

    @property
    def trained(self) -> KeptTraining | None:
        """What a file is to say of its optimizer; None if it has none."""
        return self._kept if self._training is None else self._training.kept

    @trained.setter
    def trained(self, kept: KeptTraining | None) -> None:
        self._training, self._kept = None, kept

    @property
    def steps(self) -> int:
        """How many steps were asked for since it has its optimizer: schedules go by it."""
        known = self._training or self._kept
        return 0 if known is None else known.calls

    @steps.setter
    def steps(self, count: int) -> None:
        if self._training is not None:
            self._training.calls = count

    def step(
        self,
        keys: Any,
        gradients: Any,
        *,
        step_size: float | None = None,
        wire: str | None = None,
    ) -> None:
        """One step of the rows of ``keys``, by the optimizer. One message to each holder.

        ``gradients``: shape ``(n, *row)``; those of a key that repeats are added up first, in
        their order, and make one step. ``step_size``: in place of the optimizer's own (FTRL has
        none to be changed). ``wire``: how gradients travel, as of ``push``. Raises ``OutOfBudget``
        as that.
        """
        self.step_batch(KeyBatch.of(as_keys(keys)), None, gradients, step_size, wire)

    def step_batch(
        self,
        batch: KeyBatch,
        view: KeyView | None,
        gradients: Any,
        step_size: float | None,
        wire: str | None,
    ) -> None:
        """As ``step``, of keys that may have a view."""
        if self._training is None:
            if self._kept is None:
                raise TypeError(
                    "this array has no optimizer yet; give it one: "
                    "t.optimizer(dv.rows.adagrad(0.05))"
                )
            from distvec.rows.optimizers import RowOptimizer

            self.optimizer(RowOptimizer.of(self._kept.document))
            assert self._training is not None
        self._training.step(batch, view, gradients, step_size, self._wire_of(wire))

    def at(self, keys: Any) -> RowView:
        """The rows of ``keys``, to work with again and again: these are sent once only.

        view = t.at(keys)
        view.push(update(view.pull()))
        """
        return RowView(self, KeyBatch.of(as_keys(keys)))

    def pull_batch(
        self,
        batch: KeyBatch,
        view: KeyView | None,
        missing: Missing,
        return_found: bool,
        wire: str | None,
    ) -> Any:
        """As ``pull``, of keys that may have a view."""
        if isinstance(missing, str) and missing not in ("init", "raise"):
            raise ValueError(f"missing must be 'init', 'raise' or a number, got {missing!r}")
        program = RowProgram.pull(self.type)
        find = return_found or missing != "init"
        kind = self._wire_of(wire)
        space = self.space
        with measured(space.session.counters):
            (rows,), found = space.remote.run(
                program, [self.number], batch, find=find, view=view, wire=kind
            )
        if found is not None and missing != "init":
            absent = ~found
            if missing == "raise" and absent.any():
                some = batch.keys[absent][:_MOST_NAMED].tolist()
                raise KeyError(f"{np.count_nonzero(absent)} keys are not there, such as {some}")
            if missing != "raise":
                rows[absent] = missing
        rows = batch.expanded(rows)
        return (rows, batch.expanded(found)) if return_found and found is not None else rows

    def scatter_batch(
        self, batch: KeyBatch, view: KeyView | None, values: Any, op: str, wire: str | None
    ) -> None:
        """Join ``values`` to rows by ``op``, one of ``SCATTERS``, of keys that may have a view."""
        kind = self._wire_of(wire)
        shape = (batch.count, *self.row)
        try:
            rows = np.broadcast_to(np.asarray(values, self.dtype), shape)
        except ValueError as error:
            raise ValueError(
                f"{batch.count} keys need values of shape {shape}, got {np.shape(values)}"
            ) from error
        program = RowProgram.scatter(self.type, op)
        space = self.space
        with measured(space.session.counters):
            space.remote.run(
                program,
                [self.number],
                batch,
                [batch.combined(rows, op)],
                view=view,
                wire=kind,
            )

    # --- all of it --------------------------------------------------------------------------------

    @property
    def values(self) -> DistArray:
        """All rows as they are now, a plain array in the order of ``space.keys()``.

        Arrays of one space are aligned to each other, as long as no key is inserted or removed.
        Two messages a server, one where none was since the last time.
        """
        (found,) = self.space.frozen(self)
        return found

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **options: Any
    ) -> Any:
        """``w += x`` is ``w.assign(w + x)``."""
        if len(out) > 1 or not all(isinstance(one, KeyedArray) for one in out):
            return NotImplemented
        given = _as_plain((*inputs, *options.values()))
        plain = [given.get(id(one), one) for one in inputs]
        options = {name: given.get(id(one), one) for name, one in options.items()}
        result = getattr(ufunc, method)(*plain, **options)
        for target in out:
            target.assign(result)
            return target
        return result

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> Any:
        given = _as_plain((*args, *options.values()))
        plain = [given.get(id(one), one) for one in args]
        return function(*plain, **{name: given.get(id(one), one) for name, one in options.items()})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.values, dtype)

    def __repr__(self) -> str:
        row = f", row={self.row}" if self.row else ""
        keys = "".join(f", {count}" for count in key_count(self.space))
        return f"<keyed array of {self.dtype}{keys}{row}, init={self.init}>"


def key_count(space: Sized) -> Iterator[str]:
    """How many keys there are, for ``repr``; nothing if no server can be asked.

    One message a server.
    """
    with suppress(PSError):
        yield f"{len(space):,} keys"


def _as_plain(given: Iterable[Any]) -> dict[int, DistArray]:
    """The values of the keyed arrays among ``given``, each read once; by their ids."""
    arrays = {id(one): one for one in given if isinstance(one, KeyedArray)}
    by_space: dict[int, list[KeyedArray]] = {}
    for one in arrays.values():
        by_space.setdefault(id(one.space), []).append(one)
    found: dict[int, DistArray] = {}
    for some in by_space.values():
        found |= zip(map(id, some), some[0].space.frozen(*some), strict=True)
    return found
