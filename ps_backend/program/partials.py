"""Partial results: what a sweep leaves of its reductions on one server, and how it fits together.

By layout of a reduction:

======  ==========================================================================================
        one element a block
tree    a row, or a matrix, for each node that the blocks are left with (``tree``); the rows of a
        reduction along axis 0 are of this layout too
total   one for all blocks: a row that is the same in whatever order they are joined
slots   the values of all slots
listed  the values of those slots that are in a list, in the order of the list
======  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import NothingToReduce
from ps_backend.program.reducers import REDUCERS, Partial, Reducer
from ps_backend.program.summation_order import Tree, join_all, levels
from ps_backend.program.sweep import Reduction, Sweep, SweepCall
from ps_backend.program.types import ValueType

Arrays = list[npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive slots, which begin a block and end one or the space, and their partials."""

    first: int
    length: int
    arrays: Arrays
    """Per reduction in order those of ``partial_types``, of shape ``(entries, *row)``."""


def layout_of(reduction: Reduction) -> str:
    """One of those above."""
    return REDUCERS[reduction.op].layout if reduction.axis is None else "tree"


@lru_cache(maxsize=1024)
def partial_types(sweep: Sweep, reduction: Reduction) -> tuple[ValueType, ...]:
    """The types of what a reduction leaves: one array, or two of those that locate."""
    reducer, types = REDUCERS[reduction.op], sweep.types
    value, layout = types[reduction.args[0]], layout_of(reduction)
    if layout in ("slots", "listed"):
        return (value,)
    row, found = value.row if layout else (), accumulators(sweep, reduction)
    if reduction.bins:
        row = (reduction.bins,)
    elif reducer.arity == 2 and layout:
        row += types[reduction.args[1]].row
    return tuple(ValueType(dtype.name, row) for dtype in found)


def accumulators(sweep: Sweep, reduction: Reduction) -> tuple[np.dtype[Any], ...]:
    """Dtypes of what a reduction leaves; of two factors, those for the dtype of their products."""
    kinds = [np.dtype(sweep.types[arg].dtype) for arg in reduction.args]
    return REDUCERS[reduction.op].accumulators(np.result_type(*kinds).name)


def entries(call: SweepCall, reduction: Reduction, first: int, length: int) -> int:
    """How many entries a reduction leaves of a run of slots."""
    size = call.space.block_size
    match layout_of(reduction):
        case "slots":
            return length
        case "listed":
            return int(np.count_nonzero(_slots_within(_list_of(call, reduction), first, length)))
        case "total":
            return 1
        case "tree":
            return sum(1 for _ in levels(first // size, -(-(first + length) // size)))
    return -(-length // size)


def partial_bytes(call: SweepCall, first: int, length: int) -> int:
    """Bytes of all the partial results of a run of slots."""
    return sum(
        value.row_bytes * entries(call, reduction, first, length)
        for reduction in call.sweep.reductions
        for value in partial_types(call.sweep, reduction)
    )


def concatenate(call: SweepCall, runs: Sequence[Run]) -> Arrays:
    """What consecutive runs, one at least, leave together."""
    if len(runs) == 1:
        return list(runs[0].arrays)
    together: Arrays = []
    for reduction in call.sweep.reductions:
        count = len(partial_types(call.sweep, reduction))
        places = slice(len(together), len(together) + count)
        parts = [run.arrays[places] for run in runs]
        match layout_of(reduction):
            case "tree":
                together += of_tree(call.sweep, reduction, _tree(call, reduction, runs, parts))
            case "total":
                together += [np.add.reduce(some) for some in zip(*parts, strict=True)]
            case "listed":
                together.append(_merge(_list_of(call, reduction), runs, parts))
            case _:
                together += [np.concatenate(some) for some in zip(*parts, strict=True)]
    return together


def finished(call: SweepCall, arrays: Sequence[npt.NDArray[Any]]) -> Arrays:
    """What comes of the partial results of a whole space: the nodes of a tree are joined.

    ``NothingToReduce`` for a reduction along axis 0 of no slots, if that has no result.
    """
    done: Arrays = []
    for reduction in call.sweep.reductions:
        types = partial_types(call.sweep, reduction)
        parts = arrays[len(done) : len(done) + len(types)]
        if layout_of(reduction) == "total":
            done += [one[0] for one in parts]
            continue
        if layout_of(reduction) != "tree":
            done += parts
            continue
        nodes = list(zip(*parts, strict=True))
        reducer = REDUCERS[reduction.op]
        result = join_all(reducer.joined, nodes) if nodes else _identity(reducer, types[0])
        done += [np.asarray(one, value.dtype) for one, value in zip(result, types, strict=True)]
    return done


def of_tree(sweep: Sweep, reduction: Reduction, tree: Tree[Partial]) -> Arrays:
    """The nodes as arrays with an entry for each."""
    return [
        np.array([node[k] for _, node in tree.nodes], value.dtype).reshape(-1, *value.row)
        for k, value in enumerate(partial_types(sweep, reduction))
    ]


def _tree(
    call: SweepCall, reduction: Reduction, runs: Sequence[Run], parts: Sequence[Arrays]
) -> Tree[Partial]:
    size = call.space.block_size
    tree: Tree[Partial] = Tree(REDUCERS[reduction.op].joined, runs[0].first // size)
    with np.errstate(all="ignore"):
        for run, arrays in zip(runs, parts, strict=True):
            blocks = run.first // size, -(-(run.first + run.length) // size)
            for level, node in zip(levels(*blocks), zip(*arrays, strict=True), strict=True):
                tree.append(node, level)
    return tree


def _merge(wanted: npt.NDArray[Any], runs: Sequence[Run], parts: Sequence[Arrays]) -> Any:
    """Rows at the slots of a list, each run's in the order of the list, in that order."""
    masks = [_slots_within(wanted, run.first, run.length) for run in runs]
    any_of = np.logical_or.reduce(masks)
    first = parts[0][0]
    merged = np.empty((np.count_nonzero(any_of), *first.shape[1:]), first.dtype)
    for mask, (rows,) in zip(masks, parts, strict=True):
        merged[mask[any_of]] = rows
    return merged


def _list_of(call: SweepCall, reduction: Reduction) -> Any:
    return call.scalars[reduction.args[1] - len(call.sweep.inputs)]


def _slots_within(slots: npt.NDArray[Any], first: int, length: int) -> npt.NDArray[np.bool_]:
    return (slots >= first) & (slots < first + length)


def _identity(reducer: Reducer, value: ValueType) -> Partial:
    if reducer.identity is None:
        raise NothingToReduce(reducer.refusal)
    return (np.full(value.row, reducer.identity, value.dtype),)
