"""Programs: legality is one table, structure has a stable name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ps_backend.errors import InvalidProgram
from ps_backend.program.rules import verify
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType

F, B = ValueType("float64"), ValueType("bool")
GOOD = Sweep(
    (F, F),
    (F,),
    (Step("multiply", (0, 2), F), Step("add", (3, 1), F)),
    (4,),
    (Reduction("sum", (3,)),),
)
_STORES_AN_INPUT = dataclasses.replace(GOOD, outputs=(0,))
_STORES_A_TRUTH = dataclasses.replace(
    GOOD, steps=(*GOOD.steps, Step("isnan", (4,), B)), outputs=(5,)
)
_STORES_TWO = dataclasses.replace(GOOD, outputs=(3, 4))
_ROWS, _PLACES = ValueType("float64", (2,)), ValueType("int64", (2,))
_TAKES = Sweep((_ROWS, _PLACES), (), (Step("row_take", (0, 1), _ROWS),), (2,), ())
CALL = SweepCall(GOOD, DenseSpace(10), (1, 2), (0.5,), (3,))


def test_a_good_program_passes_and_prints() -> None:
    verify(Program((CALL,), frees=(1,)))
    verify(Program((CALL._replace(donors=(2,)),)))
    assert str(GOOD).splitlines() == [
        "%0 = load float64",
        "%1 = load float64",
        "%2 = scalar float64",
        "%3 = multiply(%0, %2) float64",
        "%4 = add(%3, %1) float64",
        "store %4",
        "reduce sum(%3)",
    ]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"inputs": (ValueType("complex64"), F)}, "dtypes are one of"),
        ({"steps": (Step("fly", (0, 2), F), GOOD.steps[1])}, "is an op of the op table"),
        ({"steps": (Step("add", (0,), F), GOOD.steps[1])}, "as many arguments"),
        ({"steps": (Step("add", (0, 4), F), GOOD.steps[1])}, "are values before it"),
        ({"steps": (Step("add", (0, -1), F), GOOD.steps[1])}, "are values before it"),
        ({"outputs": (5,)}, "name values of the sweep"),
        ({"reductions": (Reduction("sum", (9,)),)}, "name values of the sweep"),
        ({"reductions": (Reduction("median", (0,)),)}, "reductions are known"),
        ({"scalars": (ValueType("float64", (3, 3, 3)),)}, "scalars have rows of two extents"),
        ({"scalars": (ValueType("float64", (3,)),)}, "rows are broadcast"),
    ],
)
def test_each_rule_of_a_sweep(change: dict[str, Any], rule: str) -> None:
    broken = CALL._replace(sweep=dataclasses.replace(GOOD, **change))
    with pytest.raises(InvalidProgram, match=rule):
        verify(Program((broken,)))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"inputs": (1,)}, "one buffer id per input"),
        ({"scalars": ()}, "one value per runtime scalar"),
        ({"outputs": ()}, "one buffer id per output"),
        ({"outputs": (1,)}, "both read and written"),
        ({"donors": (1, 2)}, "one donor per output"),
        ({"donors": (7,)}, "donors are inputs"),
        ({"donors": (1,), "inputs": (1, 2), "sweep": _STORES_AN_INPUT}, "donors are inputs"),
        ({"donors": (1,), "sweep": _STORES_A_TRUTH}, "donors are inputs"),
        ({"donors": (1, 1), "outputs": (3, 4), "sweep": _STORES_TWO}, "no donor gives twice"),
        ({"donors": (1,), "scalars": (), "sweep": _TAKES}, "no indices where memory is given away"),
    ],
)
def test_each_rule_of_a_call(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidProgram, match=rule):
        verify(Program((CALL._replace(**change),)))


def test_the_digest_names_the_structure_alone() -> None:
    same = dataclasses.replace(GOOD)
    other = dataclasses.replace(GOOD, outputs=(3,))
    assert same.digest == GOOD.digest and same == GOOD and hash(same) == hash(GOOD)
    assert other.digest != GOOD.digest
