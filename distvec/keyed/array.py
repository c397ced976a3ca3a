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
    """Run ``work`` in a daemon thread, and return a future of its result.

    Threads of an executor would keep Python alive, and would outlive the session.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by future.result()
            future.set_exception(error)

    threading.Thread(target=run, name="distvec-prefetch", daemon=True).start()
    return future


Missing = Literal["init", "raise"] | float
_MOST_NAMED = 5


class KeyedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A vector or a table over the keys of a keyed space.

    Create one with ``KeyedSpace.zeros``, ``full`` or ``table``. In NumPy expressions it is
    replaced by its ``values``, which are read when the expression is built:
    ``float(w @ w)``, ``w.assign(w - lr * g / np.sqrt(s))``, ``w += g``.

    Parameters
    ----------
    space : KeyedSpace
        The space of the keys.
    number : int
        ID of the array on the servers.
    type : ValueType
        Dtype and shape of a row.
    init : Fill
        Initial value of a row.

    Attributes
    ----------
    space : KeyedSpace
        The space of the keys.
    type : ValueType
        Dtype and shape of a row.
    init : Fill
        Initial value of a row.

    Examples
    --------
    >>> w = ps.keys().zeros()
    >>> w.push([7, 42], [0.5, 1.0])
    >>> w.pull([42, 7, 8])
    array([1. , 0.5, 0. ])
    >>> float(w @ w)
    1.25
    """

    def __init__(self, space: Space, number: int, type: ValueType, init: Fill) -> None:
        self.space = space
        self.number = number
        self.type = type
        self.init = init
        self._wire = ""
        self._training: Training | None = None
        self._kept: SavedTraining | None = None
        """The training that a file described, until it is needed."""
        space.arrays[number] = self
        self._free = weakref.finalize(self, space.session.client.free, [number])
        self._free.atexit = False

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a task, whose copy is of the same array and frees no memory."""
        return {name: value for name, value in vars(self).items() if name != "_free"}

    def with_remote(self, remote: KeySpace) -> Self:
        """Return a copy, in a task, that sends its row programs to ``remote``.

        Parameters
        ----------
        remote : KeySpace
            The connection of the task. The optimizer's steps use it, too.

        Returns
        -------
        KeyedArray
            The copy.
        """
        other = copy.copy(self)
        other.space = copy.copy(self.space)
        other.space.remote = remote
        other._training = copy.copy(self._training)
        return other

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements.

        Returns
        -------
        numpy.dtype
            The dtype.
        """
        return np.dtype(self.type.dtype)

    @property
    def row(self) -> tuple[int, ...]:
        """Shape of one row.

        Returns
        -------
        tuple of int
            ``()`` for a vector, ``(k,)`` for a table.
        """
        return self.type.row

    @property
    def wire(self) -> str | None:
        """Transfer dtype: the compression of rows that are pulled, pushed or assigned.

        The ``wire=`` argument of a call overrides it. Pushed values are rounded up or down at
        random, so that the mean of many pushes is right; a repeated run is bitwise identical. NaN
        and infinities are kept; a number that is too large for the transfer dtype becomes infinite.
        ``ps.counters.bytes_saved`` counts the bytes that it saves.

        Returns
        -------
        {"float32", "float16", "int8"} or None
            The transfer dtype. ``None``, the default, sends rows uncompressed. "int8" needs a
            table: a quarter of the bytes of float32, with one scale per row and 256 columns.
        """
        return self._wire or None

    @wire.setter
    def wire(self, kind: str | None) -> None:
        self._wire = chosen_wire(kind, self.row)

    def _wire_of(self, kind: str | None) -> str:
        """Return the transfer dtype of one call."""
        return self._wire if kind is None else chosen_wire(kind, self.row)

    def __len__(self) -> int:
        return len(self.space)

    # --- rows of keys -----------------------------------------------------------------------------

    def pull(
        self,
        keys: npt.ArrayLike,
        *,
        missing: Missing = "init",
        return_found: bool = False,
        wire: str | None = None,
    ) -> Any:
        """Return the rows of ``keys``.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``; they may repeat. Strings, and tuples of strings and integers, are
            hashed to 64 bits.
        missing : {"init", "raise"} or float, default "init"
            Value of a key that does not exist: its initial value, an error, or a number.
        return_found : bool, default False
            Whether to return also which keys exist.
        wire : {"float32", "float16", "int8", "off"}, optional
            Transfer dtype of this call. Default: the array's ``wire``.

        Returns
        -------
        numpy.ndarray or tuple of numpy.ndarray
            The rows, shape ``(n, *row)``. With ``return_found`` also booleans of shape ``(n,)``.

        Raises
        ------
        KeyError
            With ``missing="raise"``, if keys do not exist; the message lists some.
        TypeError
            If the keys are not all integers, all strings or all tuples.

        Notes
        -----
        One request to each server that stores some of the keys. Reading inserts no key.
        """
        return RowView(self, keys).pull(missing=missing, return_found=return_found, wire=wire)

    def prefetch(
        self, keys: npt.ArrayLike, *, missing: Missing = "init", wire: str | None = None
    ) -> Future[npt.NDArray[Any]]:
        """Pull rows in another thread, while this one computes.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``.
        missing : {"init", "raise"} or float, default "init"
            Value of a key that does not exist, see ``pull``.
        wire : {"float32", "float16", "int8", "off"}, optional
            Transfer dtype of this call. Default: the array's ``wire``.

        Returns
        -------
        Future of numpy.ndarray
            ``result()`` waits for the rows and returns them, shape ``(n, *row)``.

        Notes
        -----
        The rows are read when the servers process the request. A concurrent push may be in them.

        Examples
        --------
        >>> w = ps.keys().full(2.0)
        >>> ahead = w.prefetch([1, 2])
        >>> for following in ([3], [4]):
        ...     rows, ahead = ahead.result(), w.prefetch(following)
        ...     print(rows)  # compute with these rows while the next ones arrive
        [2. 2.]
        [2.]
        """
        rows = RowView(self, keys)
        return in_background(lambda: rows.pull(missing=missing, wire=wire))

    def push(self, keys: npt.ArrayLike, values: npt.ArrayLike, *, wire: str | None = None) -> None:
        """Add values to the rows of ``keys``.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``. A key that does not exist is inserted with its initial value.
        values : array_like
            Values that broadcast to shape ``(n, *row)``. The values of a repeated key are added up
            first, in their order.
        wire : {"float32", "float16", "int8", "off"}, optional
            Transfer dtype of this call; values are rounded up or down at random. Default: the
            array's ``wire``.

        Raises
        ------
        ValueError
            If ``values`` do not broadcast.
        OutOfBudget
            If a server has no memory for new keys. The ``refused`` attribute of the error has the
            keys of the unchanged rows.

        Notes
        -----
        One request to each server that stores some of the keys.
        """
        RowView(self, keys).push(values, wire=wire)

    def assign(
        self, *given: npt.ArrayLike | DistArray | KeyedArray, wire: str | None = None
    ) -> None:
        """Replace the rows of some keys, or of all keys.

        ``assign(keys, values)`` writes the rows of ``keys``. ``assign(values)`` writes all rows
        from an expression over arrays of the space.

        Parameters
        ----------
        *given : array_like or DistArray
            Either ``values``, or ``keys`` and ``values`` as for ``push``. For a repeated key the
            last value is written.
        wire : {"float32", "float16", "int8", "off"}, optional
            Transfer dtype of this call, only with ``keys``. Default: the array's ``wire``.

        Raises
        ------
        LayoutChanged
            If keys were inserted or removed since the arrays of the expression were read.
        OutOfBudget
            If a server has no memory for new keys, see ``push``.

        Notes
        -----
        With keys: one request to each server that stores some of them. Without: one request that
        computes the values and one that writes them; no row leaves its server.
        """
        if len(given) == 1:
            if wire is not None:
                raise TypeError(
                    "wire= needs keys, as assign(values) transfers no rows; write assign(keys, "
                    "values, wire=...)"
                )
            self.space.assign(self, given[0])
        else:
            keys, values = given
            RowView(self, keys).assign(values, wire=wire)

    def minimum(
        self, keys: npt.ArrayLike, values: npt.ArrayLike, *, wire: str | None = None
    ) -> None:
        """Replace rows by the element-wise minimum of the rows and values.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``. A key that does not exist is inserted with its initial value.
        values : array_like
            Values that broadcast to shape ``(n, *row)``.
        wire : {"float32", "float16", "int8", "off"}, optional
            Transfer dtype of this call. Default: the array's ``wire``.

        See Also
        --------
        push : Describes keys, errors and cost.
        """
        RowView(self, keys).minimum(values, wire=wire)

    def maximum(
        self, keys: npt.ArrayLike, values: npt.ArrayLike, *, wire: str | None = None
    ) -> None:
        """Replace rows by the element-wise maximum of the rows and values.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``. A key that does not exist is inserted with its initial value.
        values : array_like
            Values that broadcast to shape ``(n, *row)``.
        wire : {"float32", "float16", "int8", "off"}, optional
            Transfer dtype of this call. Default: the array's ``wire``.

        See Also
        --------
        push : Describes keys, errors and cost.
        """
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
            Otherwise the array keeps its states, for instance from a checkpoint, and continues
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
        from distvec.rows.optimizers import (
            RowOptimizer,
        )  # late: `optim` imports SciPy, which tasks lack

        if not isinstance(optimizer, RowOptimizer):
            raise TypeError(
                "optimizer must be a row optimizer such as dv.rows.adagrad(0.05), got "
                f"{optimizer!r}"
            )
        self._training = Training(self.space, self, optimizer, None if restart else self.trained)
        self._kept = None
        return self._training.states

    @property
    def trained(self) -> SavedTraining | None:
        """Return the optimizer and its states, as files store them; None without an optimizer.

        Returns
        -------
        SavedTraining or None
            The parameters of the optimizer, its states and its number of steps.
        """
        return self._kept if self._training is None else self._training.kept

    @trained.setter
    def trained(self, kept: SavedTraining | None) -> None:
        self._training, self._kept = None, kept

    @property
    def steps(self) -> int:
        """Number of optimizer steps so far, which step-size schedules use.

        Returns
        -------
        int
            Calls of ``step`` since the array got its optimizer.
        """
        known = self._training or self._kept
        return 0 if known is None else known.calls

    @steps.setter
    def steps(self, count: int) -> None:
        if self._training is not None:
            self._training.calls = count

    def step(
        self,
        keys: npt.ArrayLike,
        gradients: npt.ArrayLike,
        *,
        step_size: float | None = None,
        wire: str | None = None,
    ) -> None:
        """Update the rows of ``keys`` by one step of the array's optimizer.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``. A key that does not exist is inserted with its initial value.
        gradients : array_like
            Gradients, shape ``(n, *row)``. The gradients of a repeated key are added up first, and
            make one step.
        step_size : float, optional
            Step size of this call. Default: the optimizer's. FTRL does not support it.
        wire : {"float32", "float16", "int8", "off"}, optional
            Transfer dtype of the gradients. Default: the array's ``wire``.

        Raises
        ------
        TypeError
            If the array has no optimizer.
        ValueError
            If ``gradients`` have another shape.
        OutOfBudget
            If a server has no memory for new keys, see ``push``.

        Notes
        -----
        One request to each server that stores some of the keys.
        """
        RowView(self, keys).step(gradients, step_size=step_size, wire=wire)

    def _current_training(self) -> Training:
        """Return the array's training, rebuilt from a file if needed; ``TypeError`` without one."""
        if self._training is None:
            if self._kept is None:
                raise TypeError(
                    "this array has no optimizer yet; set one: t.optimizer(dv.rows.adagrad(0.05))"
                )
            from distvec.rows.optimizers import RowOptimizer

            self.optimizer(RowOptimizer.of(self._kept.document))
            assert self._training is not None
        return self._training

    def at(self, keys: npt.ArrayLike) -> RowView:
        """Return a view of the rows of ``keys``.

        Use it to access the same rows repeatedly: the keys are sent once, and later calls reuse
        them.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``.

        Returns
        -------
        RowView
            A view with the methods ``pull``, ``push``, ``assign``, ``minimum``, ``maximum``,
            ``step`` and ``apply``.

        Examples
        --------
        >>> view = ps.keys().zeros().at([3, 5])
        >>> view.push([1.0, 2.0])
        >>> view.pull()
        array([1., 2.])
        """
        return RowView(self, keys, remembered=True)

    # --- all of it --------------------------------------------------------------------------------

    @property
    def values(self) -> DistArray:
        """Return all rows as a plain array, in the order of ``space.keys()``.

        Returns
        -------
        DistArray
            The current values, shape ``(n_keys, *row)``. The arrays of one space are aligned with
            each other until a key is inserted or removed.

        Notes
        -----
        Two requests per server; one if no key was inserted or removed since the last read.
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
    """A view of the rows of a keyed array at chosen keys.

    ``KeyedArray.at`` returns one whose keys the servers remember, so they are sent once.
    """

    def __init__(self, array: KeyedArray, keys: npt.ArrayLike, *, remembered: bool = False) -> None:
        self.array = array
        self._chosen = ChosenKeys.of(array.space, keys)
        if remembered:
            client = array.space.session.client
            view = KeyView(client.new_id(), self._chosen.batch)
            self._chosen = replace(self._chosen, view=view)
            self._free = weakref.finalize(self, client.free, [view.number])
            self._free.atexit = False

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a task; each pickled view contains its keys."""
        return {name: value for name, value in vars(self).items() if name != "_free"}

    def __len__(self) -> int:
        return self._chosen.batch.count

    def pull(
        self, *, missing: Missing = "init", return_found: bool = False, wire: str | None = None
    ) -> Any:
        """Return the rows, see ``KeyedArray.pull``."""
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
                raise KeyError(
                    f"{np.count_nonzero(absent)} keys do not exist, such as {some}; push them "
                    "first, or use missing='init' or missing=0.0"
                )
            if missing != "raise":
                rows[absent] = missing
        rows = batch.expanded(rows)
        return (rows, batch.expanded(found)) if return_found and found is not None else rows

    def push(self, values: npt.ArrayLike, *, wire: str | None = None) -> None:
        """Add values to the rows, see ``KeyedArray.push``."""
        self._scatter(values, "add", wire)

    def assign(self, values: npt.ArrayLike, *, wire: str | None = None) -> None:
        """Replace the rows, see ``KeyedArray.assign``."""
        self._scatter(values, "replace", wire)

    def minimum(self, values: npt.ArrayLike, *, wire: str | None = None) -> None:
        """Replace the rows by the minimum, see ``KeyedArray.minimum``."""
        self._scatter(values, "min", wire)

    def maximum(self, values: npt.ArrayLike, *, wire: str | None = None) -> None:
        """Replace the rows by the maximum, see ``KeyedArray.maximum``."""
        self._scatter(values, "max", wire)

    def step(
        self, gradients: npt.ArrayLike, *, step_size: float | None = None, wire: str | None = None
    ) -> None:
        """Update the rows by one optimizer step, see ``KeyedArray.step``."""
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
        """Run a row function on the rows, see ``KeyedSpace.apply``."""
        return self._chosen.apply(function, args, named, combine=combine, wire=wire)

    def _scatter(self, values: Any, op: str, wire: str | None) -> None:
        """Combine ``values`` with the rows by ``op``, one of ``SCATTERS``."""
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
    """The optimizer of an array as files store it; a restored array has only this at first."""

    document: Mapping[str, Any]
    """Of the optimizer."""
    states: Mapping[str, Any]
    """The arrays that it keeps, by name."""
    calls: int

    def is_of(self, other: SavedTraining) -> bool:
        """Return whether both describe one training, possibly at different moments."""
        numbers, others = (
            {name: state.number for name, state in one.states.items()} for one in (self, other)
        )
        return self.document == other.document and numbers == others


class Training:
    """The optimizer steps of one array. The states are further arrays of the space."""

    def __init__(
        self,
        space: Space,
        weights: KeyedArray,
        optimizer: RowOptimizer,
        kept: SavedTraining | None = None,
    ) -> None:
        """Create the states, one request per server for each, or continue from ``kept``.

        ``TypeError`` if the weights are not floats, ``ValueError`` if ``kept`` has other states
        than ``optimizer``.
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
        """Return the training as files store it."""
        return SavedTraining(self.optimizer.document(), self.states, self.calls)

    def step(self, chosen: ChosenKeys, gradients: Any, step_size: float | None, wire: str) -> None:
        """Update the rows of the keys by one step. One request to each server that stores some."""
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
    """Raise ``ValueError`` unless ``optimizer`` can continue from the states of ``kept``."""
    kind = kept.document["kind"]
    if optimizer.kind != kind:
        raise ValueError(
            f"this array has the states of {kind}, and {optimizer.kind} cannot continue from "
            f"them; use {kind} again, or start with new states: t.optimizer(..., restart=True)"
        )
    found = {name: (one.type.row, one.init, one.type.dtype) for name, one in kept.states.items()}
    if found != wanted:
        raise ValueError(
            f"this array has the states {_join_names(found)}, but {optimizer.kind} with these "
            f"parameters needs {_join_names(wanted)}; use the old parameters, or start with new "
            "states: t.optimizer(..., restart=True)"
        )


def _join_names(states: Mapping[str, tuple[Row, Fill, str]]) -> str:
    listed = [
        f"{name} ({dtype}, rows of shape {row}, {fill})"
        for name, (row, fill, dtype) in states.items()
    ]
    return ", ".join(listed) or "none"


def key_count(space: Sized) -> Iterator[str]:
    """Yield the number of keys for ``repr``, or no item if the servers do not answer.

    One request per server.
    """
    with suppress(PSError):
        yield f"{len(space):,} keys"


def _as_plain(given: Iterable[Any]) -> dict[int, DistArray]:
    """Return the values of the keyed arrays among ``given`` by their IDs, each read once."""
    arrays = {id(one): one for one in given if isinstance(one, KeyedArray)}
    by_space: dict[int, list[KeyedArray]] = {}
    for one in arrays.values():
        by_space.setdefault(id(one.space), []).append(one)
    found: dict[int, DistArray] = {}
    for some in by_space.values():
        found |= zip(map(id, some), some[0].space.frozen(*some), strict=True)
    return found
