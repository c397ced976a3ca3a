"""One array of a keyed space: rows of chosen keys, and all of it as a plain array."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.array.array import DistArray
from distvec.keyed.row_call import ChosenKeys, Space, chosen_wire
from distvec.rows.api import Plugin, RowFunction
from distvec.rows.tracer import STEP_SIZE, WEIGHTS
from ps_backend.client import KeySpace, KeyView
from ps_backend.errors import PSError
from ps_backend.program.initializers import Constant, Fill
from ps_backend.program.row_program import RowProgram
from ps_backend.program.types import Row, ValueType

if TYPE_CHECKING:
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


Missing = Literal["init", "raise"] | float
_MOST_NAMED = 5


class KeyedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A vector, or a table, over the keys of a space. Made by the methods of that.

        w.push(keys, -0.1 * gradients)      # add to rows; keys that are new begin with their init
        rows = t.pull(keys)

    In expressions it stands for ``values``, which is read when the expression is built:
    ``float(w @ w)``, ``w.assign(w - lr * g / np.sqrt(s))``, ``w += g``.
    """

    def __init__(self, space: Space, number: int, type: ValueType, init: Fill) -> None:
        self.space = space
        self.number = number
        self.type = type
        """Dtype and shape of a row."""
        self.init = init
        """What a key begins with."""
        self._wire = ""
        self._training: Training | None = None
        self._kept: SavedTraining | None = None
        """What a file said of its training, until that is needed."""
        space.arrays[number] = self
        self._free = weakref.finalize(self, space.session.client.free, [number])
        self._free.atexit = False

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process, as in a task, is of the same array; it frees nothing."""
        return {name: value for name, value in vars(self).items() if name != "_free"}

    def with_remote(self, remote: KeySpace) -> Self:
        """A copy, in a task, whose row programs go to ``remote``; steps of its optimizer, too."""
        other = copy.copy(self)
        other.space = copy.copy(self.space)
        other.space.remote = remote
        other._training = copy.copy(self._training)
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
        return RowView(self, keys).pull(missing=missing, return_found=return_found, wire=wire)

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
        rows = RowView(self, keys)
        return in_background(lambda: rows.pull(missing=missing, wire=wire))

    def push(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """Add ``values`` to the rows of ``keys``. One message to each holder.

        ``values``: shape ``(n, *row)``, or what broadcasts to that. Those of a key that repeats are
        added up first, in their order. Keys that are not there begin with their initial values.
        ``wire``: how rows travel, as of ``pull``; narrowed ones are rounded up or down at random.
        Raises ``OutOfBudget`` where a server has no room for new keys: its ``refused`` are the keys
        of which nothing was changed.
        """
        RowView(self, keys).push(values, wire=wire)

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
            RowView(self, keys).assign(values, wire=wire)

    def minimum(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """Let rows be the smaller of what they are and of ``values``, as of ``push``."""
        RowView(self, keys).minimum(values, wire=wire)

    def maximum(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """Let rows be the larger of what they are and of ``values``, as of ``push``."""
        RowView(self, keys).maximum(values, wire=wire)

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
        from distvec.rows.optimizers import RowOptimizer  # `optim` imports SciPy's: tasks need none

        if not isinstance(optimizer, RowOptimizer):
            raise TypeError(f"{optimizer!r} is no row optimizer; give one: dv.rows.adagrad(0.05)")
        self._training = Training(self.space, self, optimizer, None if restart else self.trained)
        self._kept = None
        return self._training.states

    @property
    def trained(self) -> SavedTraining | None:
        """What a file is to say of its optimizer; None if it has none."""
        return self._kept if self._training is None else self._training.kept

    @trained.setter
    def trained(self, kept: SavedTraining | None) -> None:
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
        RowView(self, keys).step(gradients, step_size=step_size, wire=wire)

    def _current_training(self) -> Training:
        """Steps by its optimizer, made again from a file if need be; ``TypeError`` without one."""
        if self._training is None:
            if self._kept is None:
                raise TypeError(
                    "this array has no optimizer yet; give it one: "
                    "t.optimizer(dv.rows.adagrad(0.05))"
                )
            from distvec.rows.optimizers import RowOptimizer

            self.optimizer(RowOptimizer.of(self._kept.document))
            assert self._training is not None
        return self._training

    def at(self, keys: Any) -> RowView:
        """The rows of ``keys``, to work with again and again: these are sent once only.

        view = t.at(keys)
        view.push(update(view.pull()))
        """
        return RowView(self, keys, remembered=True)

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


class RowView:
    """Rows of a keyed array at chosen keys: what the array does with keys, it does by one of these.

    Made by ``KeyedArray.at``, servers know the keys already, as they were sent once.
    """

    def __init__(self, array: KeyedArray, keys: Any, *, remembered: bool = False) -> None:
        self.array = array
        self._chosen = ChosenKeys.of(array.space, keys)
        if remembered:
            client = array.space.session.client
            view = KeyView(client.new_id(), self._chosen.batch)
            self._chosen = replace(self._chosen, view=view)
            self._free = weakref.finalize(self, client.free, [view.number])
            self._free.atexit = False

    def __getstate__(self) -> dict[str, Any]:
        """As of ``KeyedArray``; who gets many of them gets the keys with each."""
        return {name: value for name, value in vars(self).items() if name != "_free"}

    def __len__(self) -> int:
        return self._chosen.batch.count

    def pull(
        self, *, missing: Missing = "init", return_found: bool = False, wire: str | None = None
    ) -> Any:
        """As of ``KeyedArray.pull``."""
        if isinstance(missing, str) and missing not in ("init", "raise"):
            raise ValueError(f"missing must be 'init', 'raise' or a number, got {missing!r}")
        array, batch = self.array, self._chosen.batch
        find, kind = return_found or missing != "init", array._wire_of(wire)
        program = RowProgram.pull(array.type)
        (rows,), found = self._chosen.run(program, [array.number], find=find, wire=kind)
        if found is not None and missing != "init":
            absent = ~found
            if missing == "raise" and absent.any():
                some = batch.keys[absent][:_MOST_NAMED].tolist()
                raise KeyError(f"{np.count_nonzero(absent)} keys are not there, such as {some}")
            if missing != "raise":
                rows[absent] = missing
        rows = batch.expanded(rows)
        return (rows, batch.expanded(found)) if return_found and found is not None else rows

    def push(self, values: Any, *, wire: str | None = None) -> None:
        """As of ``KeyedArray.push``."""
        self._scatter(values, "add", wire)

    def assign(self, values: Any, *, wire: str | None = None) -> None:
        """As of ``KeyedArray.assign``."""
        self._scatter(values, "replace", wire)

    def minimum(self, values: Any, *, wire: str | None = None) -> None:
        """As of ``KeyedArray.minimum``."""
        self._scatter(values, "min", wire)

    def maximum(self, values: Any, *, wire: str | None = None) -> None:
        """As of ``KeyedArray.maximum``."""
        self._scatter(values, "max", wire)

    def step(
        self, gradients: Any, *, step_size: float | None = None, wire: str | None = None
    ) -> None:
        """As of ``KeyedArray.step``."""
        training = self.array._current_training()
        training.step(self._chosen, gradients, step_size, self.array._wire_of(wire))

    def apply(
        self,
        function: RowFunction | Plugin,
        *args: Any,
        combine: str = "add",
        wire: str | None = None,
        **named: Any,
    ) -> Any:
        """As of ``KeyedSpace.apply``, on the rows of these keys."""
        return self._chosen.apply(function, args, named, combine=combine, wire=wire)

    def _scatter(self, values: Any, op: str, wire: str | None) -> None:
        """Join ``values`` to rows by ``op``, one of ``SCATTERS``."""
        array, kind = self.array, self.array._wire_of(wire)
        shape = (len(self), *array.row)
        try:
            rows = np.broadcast_to(np.asarray(values, array.dtype), shape)
        except ValueError as error:
            raise ValueError(
                f"{len(self)} keys need values of shape {shape}, got {np.shape(values)}"
            ) from error
        program = RowProgram.scatter(array.type, op)
        self._chosen.run(program, [array.number], [rows], combine=op, wire=kind)


@dataclass(frozen=True, slots=True)
class SavedTraining:
    """What files say of a training: of an array that was restored it is all that is known."""

    document: Mapping[str, Any]
    """Of the optimizer."""
    states: Mapping[str, Any]
    """The arrays that it keeps, by name."""
    calls: int

    def is_of(self, other: SavedTraining) -> bool:
        """Whether both are of one training, though maybe of different moments."""
        numbers, others = (
            {name: state.number for name, state in one.states.items()} for one in (self, other)
        )
        return self.document == other.document and numbers == others


class Training:
    """Steps of the rows of one array. Its states are arrays beside it."""

    def __init__(
        self,
        space: Space,
        weights: KeyedArray,
        optimizer: RowOptimizer,
        kept: SavedTraining | None = None,
    ) -> None:
        """Begin it, one message a server for each state; or go on from ``kept``.

        ``TypeError`` for weights that are no floats, ``ValueError`` for other states than those of
        ``optimizer``.
        """
        row, dtype = weights.type.row, weights.type.dtype
        start = float(weights.init.value) if isinstance(weights.init, Constant) else None
        self._type = weights.type
        self._traced = optimizer.traced(row, dtype, start)
        self.optimizer = optimizer
        wanted = {
            state.name: (state.row, Constant(state.initial), state.dtype)
            for state in optimizer.states(row, dtype, start)
        }
        if kept is not None:
            _check_same(optimizer, wanted, kept)
        self.states: Mapping[str, Any] = MappingProxyType(
            {name: space.array(*how) for name, how in wanted.items()}
            if kept is None
            else dict(kept.states)
        )
        """The arrays of the space that the optimizer keeps, by name."""
        self.calls = 0 if kept is None else kept.calls
        """How many steps were asked for: what a schedule of step sizes goes by."""
        numbers = {name: state.number for name, state in self.states.items()}
        numbers[WEIGHTS] = weights.number
        self._arrays = [numbers[name] for name in self._traced.arrays]

    @property
    def kept(self) -> SavedTraining:
        """What files say of it."""
        return SavedTraining(self.optimizer.document(), self.states, self.calls)

    def step(self, chosen: ChosenKeys, gradients: Any, step_size: float | None, wire: str) -> None:
        """One step of the rows of the keys; gradients go as ``wire``. One message a holder."""
        shape = (chosen.batch.count, *self._type.row)
        given = np.asarray(gradients, self._type.dtype)
        if given.shape != shape:
            raise ValueError(f"{shape[0]} keys need gradients of shape {shape}, got {given.shape}")
        numbers = self.optimizer.numbers(self.calls)
        if step_size is not None:
            numbers[STEP_SIZE] = float(step_size)
        scalars = self._traced.scalars(numbers)
        chosen.run(self._traced.program, self._arrays, [given], scalars, wire=wire)
        self.calls += 1


def _check_same(
    optimizer: RowOptimizer, wanted: Mapping[str, tuple[Row, Fill, str]], kept: SavedTraining
) -> None:
    """``ValueError`` where ``optimizer`` cannot go on from the states of ``kept``."""
    kind = kept.document["kind"]
    if optimizer.kind != kind:
        raise ValueError(
            f"this array has states of {kind}, and {optimizer.kind} cannot go on from them; give "
            f"{kind} again, or begin with new states: t.optimizer(..., restart=True)"
        )
    found = {name: (one.type.row, one.init, one.type.dtype) for name, one in kept.states.items()}
    if found != wanted:
        raise ValueError(
            f"this array has the states {_join_names(found)}, but {optimizer.kind} with these "
            f"parameters needs {_join_names(wanted)}; give the parameters that it had, or begin "
            "with new states: t.optimizer(..., restart=True)"
        )


def _join_names(states: Mapping[str, tuple[Row, Fill, str]]) -> str:
    listed = [
        f"{name} ({dtype}, rows of shape {row}, {fill})"
        for name, (row, fill, dtype) in states.items()
    ]
    return ", ".join(listed) or "none"


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
