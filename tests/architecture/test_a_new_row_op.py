"""Someone adds a row op: the row below, given to ``register``, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.session import Session
from ps_backend.program import row_ops
from ps_backend.program.row_ops import Params, Place, RowOp, Values, width
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from tests.architecture.apart import used

X = np.random.default_rng(0).standard_normal((3000, 5))


def windows(values: Values, params: Params) -> ValueType:
    return ValueType(values[0].dtype, (width(values[0]) - params[0] + 1,))


def moving_sum(out: Any, place: Place, rows: Any) -> Any:
    seen = np.lib.stride_tricks.sliding_window_view(rows, place.params[0], axis=1)
    return seen.sum(axis=2, out=out)


MOVING_SUM = RowOp("moving_sum", 1, windows, moving_sum, params=1)


def register() -> None:
    row_ops.register(MOVING_SUM)


def use(ps: Session) -> None:
    client, space = ps.client, DenseSpace(len(X))
    given, made = client.new_id(), client.new_id()
    client.write(given, space, X)
    table, narrow = ValueType("float64", (5,)), ValueType("float64", (3,))
    steps = (Step("exp", (0,), table), Step("moving_sum", (1,), narrow, (3,)))
    sweep = Sweep((table,), (), steps, (2,), ())
    client.run(Program((SweepCall(sweep, space, (given,), (), (made,)),)))
    windows_of = np.lib.stride_tricks.sliding_window_view(np.exp(X), 3, axis=1)
    got = client.read(made, array_type(space, float, (3,)))
    assert got.tobytes() == windows_of.sum(axis=2).tobytes()


def test_it_is_a_step_of_sweeps_on_two_servers():
    used("test_a_new_row_op")
