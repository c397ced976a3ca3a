"""What a server remembers of row programs: small ones, so that clients cannot fill its memory."""

from __future__ import annotations

import gc
import weakref

import pytest

from ps_backend.kernels.keyed.initial import Constant
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.program.row_program import RowProgram, Scatter
from ps_backend.program.sweep import Step, Sweep
from ps_backend.program.types import ValueType
from ps_backend.server.state.keyed.row_run import RowRun
from ps_backend.server.state.keyed.space import KeyedRows

FLOAT = ValueType("float64")


@pytest.mark.parametrize(("steps", "is_kept"), [(100, True), (200, False)])
def test_only_small_programs_are_remembered(steps, is_kept):
    negated = tuple(Step("negative", (k,), FLOAT) for k in range(steps))
    program = RowProgram(Sweep((FLOAT,), (), negated, (steps,), ()), (0,), (Scatter(0, 0),))
    RowRun.prepare(program, [KeyedRows(FLOAT, RowStore(float, (), Constant(0)))], ())
    held = weakref.ref(program)
    del program
    gc.collect()
    assert (held() is not None) == is_kept
