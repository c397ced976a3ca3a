"""What a server remembers of row programs: small ones, so that clients cannot fill its memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.program.initializers import Constant
from ps_backend.program.row_program import RowProgram, Scatter
from ps_backend.program.sweep import Step, Sweep
from ps_backend.program.types import ValueType
from ps_backend.server.state.keyed.row_run import RowRun
from ps_backend.server.state.keyed.space import KeyedRows, KeyedSpace, KeyList
from ps_backend.server.state.memory import Memory

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


@pytest.mark.parametrize("is_hot", [False, True])
def test_threads_share_large_batches(monkeypatch: pytest.MonkeyPatch, is_hot: bool) -> None:
    """Bits and slots are those of one thread: pushed, found, computed with, pulled."""
    row, keys = ValueType("float32", (4,)), np.arange(0, 300_000, 3)
    steps = (Step("add", (0, 1), row), Step("sqrt", (2,), row))
    program = RowProgram(Sweep((row, row), (), steps, (3,), ()), (0,), (Scatter(0, 0),))
    values = np.random.default_rng(0).random((len(keys), 4)).astype(np.float32)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        space = KeyedSpace(Memory(1 << 30), most_bytes=0)
        rows = KeyedRows(row, RowStore("float32", (4,), Constant(0)))
        space.add_array(1, rows)
        out = np.empty_like(values)
        for one in (RowProgram.scatter(row, "add"), program, RowProgram.pull(row)):
            run = RowRun.prepare(one, [rows], ())
            if one is program and is_hot:
                run.hot.rise()
            given = [values] if one.given else []
            run.run(space, KeyList(keys), given, [out] if one.returns else [])
        found.append((space.index.find(keys).tobytes(), out.tobytes()))
    assert found[0] == found[1]
    assert np.array_equal(out, np.sqrt(values + values))
