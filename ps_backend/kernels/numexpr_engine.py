"""The numexpr engine: NumPy's engine, whose chains of steps are expressions of numexpr.

numexpr (https://numexpr.readthedocs.io) runs a chain block by block in the innermost cache, by an
interpreter of its own, and needs no compiler. It gets the steps that have NumPy's bits there
(``TEXTS``): no function that it takes from the C library, none that it computes in another dtype,
and no integer division, which ends the process if the divisor is 0. NumPy's functions compute the
others, and all reductions. The texts, which numexpr evaluates as Python, are made here alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numexpr
import numpy as np
from numexpr import expressions

from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.kernels.numpy_instructions import Run
from ps_backend.program.row_ops import Place
from ps_backend.program.sweep import Step, Sweep

_KINDS: Mapping[str, type] = MappingProxyType(
    {"bool": bool, "int32": np.int32, "int64": np.int64, "float32": float, "float64": np.float64}
)
"""By dtype, what numexpr calls it: its ``float`` has 32 bits."""
_FLOATS = ("float32", "float64")
_NUMBERS = ("int32", "int64", *_FLOATS)
_BITS = ("bool", "int32", "int64")

TEXTS: Mapping[str, tuple[str, Sequence[str]]] = MappingProxyType(
    {
        "add": ("({0} + {1})", _NUMBERS),
        "subtract": ("({0} - {1})", _NUMBERS),
        "multiply": ("({0} * {1})", _NUMBERS),
        "divide": ("({0} / {1})", _FLOATS),
        "negative": ("(-{0})", _NUMBERS),
        "square": ("({0} ** 2)", _NUMBERS),
        "equal": ("({0} == {1})", _NUMBERS),
        "not_equal": ("({0} != {1})", _NUMBERS),
        "less": ("({0} < {1})", _NUMBERS),
        "less_equal": ("({0} <= {1})", _NUMBERS),
        "greater": ("({0} > {1})", _NUMBERS),
        "greater_equal": ("({0} >= {1})", _NUMBERS),
        "logical_and": ("({0} & {1})", ("bool",)),
        "logical_or": ("({0} | {1})", ("bool",)),
        "logical_xor": ("({0} ^ {1})", ("bool",)),
        "logical_not": ("(~{0})", ("bool",)),
        "bitwise_and": ("({0} & {1})", _BITS),
        "bitwise_or": ("({0} | {1})", _BITS),
        "bitwise_xor": ("({0} ^ {1})", _BITS),
        "bitwise_invert": ("(~{0})", _BITS),
        "where": ("where({0}, {1}, {2})", _NUMBERS),
        "abs": ("abs({0})", _FLOATS),
        "fabs": ("abs({0})", _FLOATS),
        "floor": ("floor({0})", _FLOATS),
        "ceil": ("ceil({0})", _FLOATS),
        "sqrt": ("sqrt({0})", _FLOATS),
        "trunc": ("trunc({0})", ("float64",)),
        "maximum": ("maximum({0}, {1})", ("float64",)),
        "minimum": ("minimum({0}, {1})", ("float64",)),
        "isnan": ("isnan({0})", _FLOATS),
        "isinf": ("isinf({0})", _FLOATS),
        "isfinite": ("isfinite({0})", _FLOATS),
    }
)
"""By op its text, and the dtype that its operands must have, but for the mask of ``where``."""

_LEAST_STEPS = 2
"""A single step is one call of NumPy's, too."""
_MOST_STEPS = 64
_MOST_LEAVES = 24
"""numexpr iterates over 31 arrays at most."""
_CHUNK = 1 << 17
"""Elements: a call of numexpr's takes some 10 us besides its work, and wakes its threads."""


class NumexprKernel(NumpyKernel):
    """See ``kernels.Kernel`` for the call."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep, fuse=fused, chunk=_CHUNK)


@dataclass(frozen=True, slots=True)
class _Tree:
    """A value as an expression of others: ``v7`` is value 7."""

    text: str
    leaves: frozenset[int]
    steps: int


def fused(sweep: Sweep) -> dict[int, tuple[Step, Run]]:
    """By value of ``sweep`` the expression that it is, as a step on other values."""
    first = len(sweep.inputs) + len(sweep.scalars)
    uses = Counter(arg for step in sweep.steps for arg in step.args)
    trees: dict[int, _Tree] = {}
    inlined: set[int] = set()
    for value, step in enumerate(sweep.steps, first):
        if not (isinstance(step, Step) and is_exact(sweep, value)):
            continue
        operands = {
            arg: trees[arg]
            if arg in trees and uses[arg] == 1 and arg not in sweep.results
            else _Tree(f"v{arg}", frozenset([arg]), 0)
            for arg in step.args
        }
        tree = _join(step, operands)
        if tree.steps > _MOST_STEPS or len(tree.leaves) > _MOST_LEAVES:
            operands = {arg: _Tree(f"v{arg}", frozenset([arg]), 0) for arg in step.args}
            tree = _join(step, operands)
        trees[value] = tree
        inlined |= {arg for arg, one in operands.items() if one.steps}
    found = {}
    for value, tree in trees.items():
        if value not in inlined and tree.steps >= _LEAST_STEPS:
            leaves = tuple(sorted(tree.leaves))
            run = _expression(tree.text, tuple((f"v{k}", sweep.types[k].dtype) for k in leaves))
            found[value] = Step("numexpr", leaves, sweep.types[value]), run
    return found


def is_exact(sweep: Sweep, value: int) -> bool:
    """Whether numexpr computes a step with NumPy's bits, and in its dtype."""
    step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
    if step.op not in available() or value in sweep.constants:
        return False
    kinds = [sweep.types[arg].dtype for arg in step.args]
    if step.op == "where" and kinds.pop(0) != "bool":
        return False
    return len({*kinds}) == 1 and kinds[0] in TEXTS[step.op][1]


@lru_cache(maxsize=1)
def available() -> frozenset[str]:
    """The ops of ``TEXTS`` that this numexpr has, and computes itself: Intel's VML rounds."""
    names = {op: text.partition("(")[0] for op, (text, _) in TEXTS.items()}
    return frozenset(
        op
        for op, name in names.items()
        if not name or name == "where" or (name in expressions.functions and not numexpr.use_vml)
    )


def _join(step: Step, operands: Mapping[int, _Tree]) -> _Tree:
    args = [operands[arg] for arg in step.args]
    text = TEXTS[step.op][0].format(*(one.text for one in args))
    leaves = frozenset[int]().union(*(one.leaves for one in args))
    return _Tree(text, leaves, 1 + sum(one.steps for one in operands.values()))


@lru_cache(maxsize=256)
def _expression(text: str, types: tuple[tuple[str, str], ...]) -> Run:
    """What computes an expression of arrays and numbers into ``out``."""
    program: Any = numexpr.NumExpr(text, [(name, _KINDS[dtype]) for name, dtype in types])

    def run(out: Any, place: Place, *args: Any) -> np.ndarray:
        arrays = map(np.asarray, args)
        found: np.ndarray = program(*arrays, out=out, order="C", casting="no", ex_uses_vml=False)
        return found

    return run
