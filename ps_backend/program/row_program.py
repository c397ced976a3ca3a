"""What servers do with the rows of chosen keys: gather them, compute on them, scatter the results.

Pulls, pushes, the steps of row optimizers and functions of users are all such programs. A server
runs one over the *batch* of those keys of a message that it holds, each of them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ps_backend.errors import InvalidProgram
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import ValueType
from ps_backend.program.user_signatures import EACH, KEYS, NUMBER, ROWS, Signature

SCATTERS = ("replace", "add", "min", "max")
"""How a result is joined to the row that is there."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Where an output of the sweep goes: into one of the arrays that the call names."""

    output: int
    array: int
    op: str = "replace"
    where: int | None = None
    """The output, booleans, that says for which keys; None: for all."""


@dataclass(frozen=True)
class OwnFunction:
    """A plug-in that computes the results of a row program."""

    plugin: str
    """The name under which the servers' operator has loaded it."""
    signature: Signature
    results: tuple[ValueType, ...]
    """The types of new rows, and of what it returns, as the signature has them."""


@dataclass(frozen=True)
class RowProgram:
    """The structure of a row program. Hashable; the arrays and the values come with a call.

    The slots of the ``sweep`` are the keys of the batch. Its inputs are, in order, the rows that
    are gathered, one input for each place in ``gathers``; what comes along with the keys; and, if
    ``with_keys``, the keys themselves, as int64. It has no reductions: these would depend on which
    keys one server holds.
    """

    sweep: Sweep
    gathers: tuple[int, ...] = ()
    """For each gathered input, which of the arrays that the call names it is of."""
    scatters: tuple[Scatter, ...] = ()
    returns: tuple[int, ...] = ()
    """Outputs that the answer brings, by their places among the outputs of the sweep."""
    with_keys: bool = False
    own: OwnFunction | None = None
    """What makes the results, where no sweep does. That then has inputs and scalars alone."""

    @cached_property
    def results(self) -> tuple[ValueType, ...]:
        """The types of what it makes, as scatters and returns count them."""
        return self.sweep.stored if self.own is None else self.own.results

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.sweep, self.gathers, self.scatters, self.returns, self.with_keys))

    @cached_property
    def given(self) -> tuple[ValueType, ...]:
        """The types of what comes along, one row for each key."""
        last = len(self.sweep.inputs) - self.with_keys
        return self.sweep.inputs[len(self.gathers) : last]

    @cached_property
    def returned(self) -> tuple[ValueType, ...]:
        """The types of what the answer brings, one row for each key."""
        return tuple(self.results[output] for output in self.returns)

    @cached_property
    def is_conditional(self) -> bool:
        """Whether it is computed for which keys some rows are written."""
        return any(scatter.where is not None for scatter in self.scatters)

    @cached_property
    def changes(self) -> bool:
        """Whether it writes anything, and so inserts the keys that are missing."""
        return bool(self.scatters)

    @classmethod
    @lru_cache(maxsize=256)
    def pull(cls, type: ValueType) -> RowProgram:
        """Returns the rows of one array."""
        return cls(Sweep((type,), (), (), (0,), ()), gathers=(0,), returns=(0,))

    @classmethod
    @lru_cache(maxsize=256)
    def scatter(cls, type: ValueType, op: str) -> RowProgram:
        """Joins rows that come along to those of one array."""
        return cls(Sweep((type,), (), (), (0,), ()), scatters=(Scatter(0, 0, op),))

    def verify(self) -> None:
        """Raise ``InvalidProgram`` unless its parts fit together; the sweep is verified apart."""
        sweep = self.sweep
        if sweep.reductions:
            raise InvalidProgram("a row program cannot contain reductions")
        if len(self.gathers) + self.with_keys > len(sweep.inputs):
            raise InvalidProgram(f"{len(self.gathers)} gathered inputs of {len(sweep.inputs)}")
        if self.with_keys and sweep.inputs[-1] != ValueType("int64"):
            raise InvalidProgram(f"keys are int64, and not {sweep.inputs[-1]}")
        outputs = range(len(self.results))
        for scatter in self.scatters:
            if scatter.op not in SCATTERS:
                raise InvalidProgram(f"no scatter {scatter.op!r}, but {', '.join(SCATTERS)}")
        masks = [scatter.where for scatter in self.scatters if scatter.where is not None]
        used = [*(scatter.output for scatter in self.scatters), *self.returns, *masks]
        if any(output not in outputs for output in used):
            raise InvalidProgram(f"outputs {used} are used, and there are {len(outputs)}")
        if any(self.results[output] != ValueType("bool") for output in masks):
            raise InvalidProgram("the mask of written rows must have a boolean for each key")
        written = [scatter.array for scatter in self.scatters]
        if len(set(written)) < len(written):
            raise InvalidProgram("a row program writes an array once")
        if min((*self.gathers, *written), default=0) < 0:
            raise InvalidProgram("arrays are counted from 0")


def own_program(plugin: str, signature: Signature, types: Mapping[str, ValueType]) -> RowProgram:
    """The row program of a plug-in, if its arguments, by name, are of ``types``.

    Its arrays are those that the signature calls rows, in that order. ``TypeError``.
    """
    results = signature.bind(types, plugin)
    rows = signature.names(ROWS)
    inputs = [types[name] for kind in (ROWS, EACH, KEYS) for name in signature.names(kind)]
    scalars = [types[name] for name in signature.names(NUMBER)]
    scatters = [Scatter(k, rows.index(name)) for k, name in enumerate(signature.updates)]
    return RowProgram(
        Sweep(tuple(inputs), tuple(scalars), (), (), ()),
        tuple(range(len(rows))),
        tuple(scatters),
        tuple(range(len(scatters), len(results))),
        bool(signature.names(KEYS)),
        OwnFunction(plugin, signature, results),
    )


def program_of(plugin: str, signature: Signature, sweep: Sweep) -> RowProgram:
    """The same where the types are those of a sweep; ``InvalidProgram`` if they do not fit."""
    names = [name for kind in (ROWS, EACH, KEYS, NUMBER) for name in signature.names(kind)]
    values = sweep.inputs + sweep.scalars
    if len(values) != len(names):
        raise InvalidProgram(f"{len(values)} values for the arguments of {signature}")
    try:
        made = own_program(plugin, signature, dict(zip(names, values, strict=True)))
    except TypeError as error:
        raise InvalidProgram(str(error)) from None
    if made.sweep != sweep:
        raise InvalidProgram(f"the values of a call do not fit {signature}")
    return made
