"""Checkpoints of a run: their content, their times, and whether a run may resume from them."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from optim.core.arrays import Array, namespace, persist
from optim.core.checkpoints.encode import Decoder, Encoder, structure_name
from optim.core.checkpoints.keeper import Corrupted, Keeper, NpzKeeper, ThroughNumPy
from optim.core.result import Record, Records, State
from optim.core.trees import Structure, Tree, named_leaves

_LONG = 200


def parameters(solver: Any) -> dict[str, str]:
    """The parameters of `solver` by name, without those that only say when to stop.

    Functions are "a function", whatever they do; arrays on servers are known by shape and dtype.
    """
    names = (own.name for own in fields(solver) if own.name not in solver.stops)
    return {name: _text(getattr(solver, name)) for name in names}


def _text(value: Any) -> str:
    text = _describe(value)
    if len(text) <= _LONG:
        return text
    return f"{text[: _LONG // 2]}... (CRC-32 {zlib.crc32(text.encode()):08x})"


def _describe(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        own = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        return f"{type(value).__name__}({_join_names(own)})"
    if isinstance(value, (np.ndarray, np.generic)):
        crc = zlib.crc32(value.tobytes())
        return f"array(shape={value.shape}, dtype={value.dtype}, CRC-32 {crc:08x})"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"array(shape={tuple(value.shape)}, dtype={value.dtype})"
    if isinstance(value, Mapping):
        return f"{{{_join_names({repr(key): one for key, one in value.items()})}}}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_describe, value))}]"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if callable(value):
        return "a function"
    if hasattr(value, "lb") and hasattr(value, "ub"):  # scipy.optimize.Bounds
        return _describe({"lb": value.lb, "ub": value.ub})
    return f"a {type(value).__name__}"


def _join_names(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_describe(value)}" for name, value in values.items())


Place: TypeAlias = str | os.PathLike[str] | Literal[False] | None
"""A directory for checkpoints; None: the directory of the session of x; False: no checkpoints."""

_FORMAT = 1


@dataclass(frozen=True)
class Kept:
    """The content of a checkpoint: a resumed run ends as if it had never been interrupted.

    last      the newest state, as the solver made it: its outcome, if any, is the solver's own
    best      the best one
    history   a record of each iteration
    reported  the iteration up to which callbacks were called
    calls     of the objective, if it counts them by itself
    """

    last: State
    best: State
    history: Records
    reported: int
    calls: int | None = None


@dataclass
class Checkpoints:
    """The checkpoints of one run: at its start, after each `every` iterations, and at its end.

    x         the start, with which all arrays of the run share library and structure
    place     the directory, for errors
    """

    keeper: Keeper
    solver: Any
    x: Array
    every: int
    place: str
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _number: int = -1
    _iteration: int | None = None

    def __post_init__(self) -> None:
        self._parameters = parameters(self.solver)  # Only once, because it reads all arrays.

    def due(self, iteration: int) -> bool:
        """Whether so many iterations have passed since the last one."""
        return self._iteration is None or iteration - self._iteration >= self.every

    @property
    def begun(self) -> bool:
        """Whether there is one of this run."""
        return self._iteration is not None

    def save(self, kept: Kept, *, wait: bool) -> None:
        """Begin to keep a checkpoint; with `wait`, until it is kept. Raises as `Keeper.save`."""
        encoder = Encoder(local=_is_numpy(self.x))
        document = {
            "format": _FORMAT,
            "run": self._run,
            "solver": type(self.solver).__name__,
            "parameters": self._parameters,
            "last": encoder.encode(kept.last, "last"),
            "best": encoder.encode(kept.best, "best"),
            "history": encoder.encode(_table(kept.history), "history"),
            "reported": kept.reported,
            "calls": kept.calls,
        }
        persist(*encoder.arrays.values())
        self._iteration = kept.last.iteration
        self._number = max(
            self._number + 1, self._iteration
        )  # A stall repeats the iteration's number.
        self.keeper.save(self._number, encoder.arrays, document, wait=wait)

    def resumed(self) -> Kept | None:
        """The newest checkpoint of any run of this solver; None if there is no checkpoint."""
        found = self.keeper.load()
        if found is None:
            return None
        number, arrays, document = found
        self._check(document)
        self._run, self._number = document["run"], number
        return self._decode(arrays, document)

    def rolled_back(self) -> Kept | None:
        """The newest checkpoint of this run; None before the first one."""
        found = self.keeper.load()
        if found is None or found[2].get("run") != self._run:
            return None
        number, arrays, document = found
        self._number = number
        return self._decode(arrays, document)

    def _decode(self, arrays: Mapping[str, Array], document: Mapping[str, Any]) -> Kept:
        decoder = Decoder(arrays, dict(_kinds(self.x)))
        last, best = decoder.decode(document["last"]), decoder.decode(document["best"])
        if not isinstance(last, State) or not isinstance(best, State):
            raise Corrupted(
                f"the checkpoint in {self.place} holds no state; start again in another directory"
            )
        self._check_arrays(last.x)
        self._iteration = last.iteration
        history = _records(decoder.decode(document["history"]))
        return Kept(last, best, history, document["reported"], document["calls"])

    def _check(self, document: Mapping[str, Any]) -> None:
        """Refuse a checkpoint from which this solver must not continue."""
        if document.get("format") != _FORMAT:
            raise Corrupted(
                f"the checkpoint in {self.place} has the format {document.get('format')!r}, and "
                f"this version of optim reads {_FORMAT}; resume with the version that wrote it, or "
                "start again in another directory"
            )
        name, made_by = type(self.solver).__name__, document["solver"]
        if made_by != name:
            raise ValueError(
                f"resume: the checkpoint in {self.place} was made by {made_by}, so {name} cannot "
                f"continue from it; resume it with {made_by}(...), or give {name} another directory"
            )
        now, then = self._parameters, document["parameters"]
        for parameter in {**now, **then}:
            if now.get(parameter) != then.get(parameter):
                raise ValueError(
                    f"resume: the checkpoint in {self.place} was made with {name}({parameter}="
                    f"{then.get(parameter)}), but {parameter} is {now.get(parameter)} now, so "
                    "further steps would differ; give the same value, or start again in another "
                    "directory, from the state's x or with resume=state"
                )

    def _check_arrays(self, x: Array) -> None:
        """Refuse a start unlike the checkpoint's x in structure, shapes or dtypes."""
        kept, given = list(_types_of(x)), list(_types_of(self.x))
        if kept != given:
            raise ValueError(
                f"resume: in the checkpoint in {self.place} x is {_list_types(kept)}, but x0 is "
                f"{_list_types(given)}; give an x0 like x, or start again in another directory"
            )


def open_checkpoints(
    solver: Any, x: Array, checkpoint: Place, every: int, *, resume: bool
) -> Checkpoints | None:
    """Return the checkpoints of a run from `x`; None if it keeps no checkpoints.

    Raises ValueError if the directory holds some and `resume` does not ask for them.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(
            f"every={every!r}: must be the iterations between checkpoints, an int of 1 or more"
        )
    keeper = None if checkpoint is False else _keeper(x, checkpoint)
    if keeper is None:
        if resume:
            raise ValueError(
                "resume=True needs the directory of the checkpoints; give checkpoint=directory, "
                "or open the session with durability='rollback', checkpoint=directory"
            )
        return None
    place = repr(os.fspath(checkpoint)) if checkpoint else "the session's directory"
    if checkpoint and not resume and keeper.load() is not None:
        keeper.close()
        raise ValueError(
            f"checkpoint={place} holds checkpoints already; give resume=True to continue from the "
            "newest, or another directory, or delete the files of the old run"
        )
    return Checkpoints(keeper, solver, x, every, place)


def _keeper(x: Array, directory: str | os.PathLike[str] | None) -> Keeper | None:
    """The store of the array's own library, if it has one; otherwise the store for NumPy arrays."""
    _, leaf = next(iter(named_leaves(x)))
    own = getattr(namespace(leaf), "keeper", None)
    if own is not None:
        keeper: Keeper | None = own(None if directory is None else os.fspath(directory))
        return keeper
    if directory is None:
        return None
    if not isinstance(directory, (str, os.PathLike)) or not os.fspath(directory):
        raise TypeError(f"checkpoint={directory!r}: must be a directory, for instance 'run1'")
    if _is_numpy(x):
        return NpzKeeper(directory)
    if not hasattr(leaf, "__dlpack__"):
        raise NotImplementedError(
            f"checkpoint={directory!r}: {type(leaf).__name__} has no checkpoint store and no "
            "__dlpack__ for NumPy to read it; minimise on NumPy arrays"
        )
    return ThroughNumPy(NpzKeeper(directory), leaf)


def _is_numpy(x: Array) -> bool:
    return all(isinstance(leaf, np.ndarray) for _, leaf in named_leaves(x))


def _kinds(x: Array) -> Iterator[tuple[str, type]]:
    """The classes of tuples with named fields in the structure of `x`."""
    pending = [x.structure] if isinstance(x, Tree) else []
    while pending:
        structure: Structure = pending.pop()
        pending += structure.parts
        if structure.kind is not None:
            yield structure_name(structure.kind), structure.kind


def _types_of(x: Array) -> Iterator[str]:
    for name, leaf in named_leaves(x):
        kind = f"{type(leaf).__module__.partition('.')[0]}.{type(leaf).__name__}"
        yield f"x{name}: {kind}, shape {tuple(leaf.shape)}, {leaf.dtype}"


def _list_types(described: list[str]) -> str:
    return "; ".join(described)


def _table(history: Sequence[Record]) -> npt.NDArray[np.float64]:
    rows = [(r.value, r.gradient_norm, r.step_size, r.evaluations, r.seconds) for r in history]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 5)


def _records(table: Any) -> Records:
    rows = (map(float, row) for row in table)
    return Records(Record(v, norm, step, int(count), sec) for v, norm, step, count, sec in rows)
