"""Sweeps with rows that break a rule: row ops, reductions and operands that do not fit."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

from ps_backend.errors import InvalidProgram
from ps_backend.in_process import connect_in_process
from ps_backend.program import row_ops
from tests.ps_backend.rows import Rows


@pytest.fixture(scope="module")
def clients():
    with ExitStack() as stack:
        yield [stack.enter_context(connect_in_process(n)) for n in (1, 2, 3)]


X, V = np.zeros((9, 3)), np.zeros(9)


def refused(client, rows: Rows, outputs=(), reductions=()) -> str:
    with pytest.raises(InvalidProgram) as caught:
        rows.run(client, outputs, reductions)
    return str(caught.value)


@pytest.mark.parametrize(
    ("op", "args", "row", "params"),
    [
        ("row_sum", (0,), (3,), ()),
        ("row_sum", (1,), (), ()),
        ("as_column", (0,), (1,), ()),
        ("as_vector", (0,), (), ()),
        ("broadcast", (0,), (4,), ()),
        ("broadcast", (1,), (2, 2), ()),
        ("column", (0,), (), (3,)),
        ("column", (0,), (), (-1,)),
        ("columns", (0,), (3,), (0, 5, 2)),
        ("columns", (0,), (2,), (0, 3, 0)),
        ("columns", (0,), (3,), (2, -2, -1)),
        ("columns", (0,), (0,), (2, 2, 1)),
        ("join_columns", (0, 1), (4,), ()),
        ("row_dot", (0, 1), (), ()),
        ("matmul", (0, 2), (), ()),
        ("matmul", (0, 4), (2,), ()),
        ("take_columns", (0, 2), (4,), ()),
        ("slots", (4,), (3,), ()),
        ("place", (0, 3, 2), (3,), ()),
        ("row_sort", (1,), (), (0, 0)),
    ],
)
def test_row_ops_that_do_not_fit(clients, op, args, row, params):
    rows = Rows([X, V], [np.zeros(4), np.zeros(2, np.int64), np.zeros((2, 2))])
    made = rows.step(op, *args, row=row, params=params)
    assert "row ops have arguments, parameters" in refused(clients[1], rows, [made])


def test_parameters_are_as_many_as_the_op_takes(clients):
    for op, params in (("row_sum", (1,)), ("column", ()), ("add", (1,))):
        rows = Rows([X])
        args = (0, 0) if op == "add" else (0,)
        made = rows.step(op, *args, row=(3,) if op == "add" else (), params=params)
        assert "as many parameters as its op takes" in refused(clients[0], rows, [made])


def test_what_is_no_table_of_each_slot(clients):
    for args in ((2, 0), (0, 1)):
        rows = Rows([X, V], [np.zeros((9, 3))])
        assert "rows are broadcast" in refused(
            clients[0], rows, [rows.step("add", *args, row=(3,))]
        )
    rows = Rows([X], [np.zeros((3, 3))])
    assert "rows of one extent" in refused(clients[0], rows, [1])
    assert "rows of one extent" in refused(clients[0], rows, (), [("gram", (0, 1), None)])
    rows = Rows([X, V.astype(np.int64)])
    assert "are runtime scalars" in refused(clients[0], rows, (), [("take", (0, 1), None)])


def test_reductions_that_do_not_fit(clients):
    rows = Rows([X, V], [np.zeros(2)])
    for reduction in (
        ("sum", (1,), 0),
        ("gram", (0, 0), 0),
        ("sum", (0,), 1),
        ("collect", (0,), 0),
    ):
        assert "along axis 0" in refused(clients[0], rows, (), [reduction])
    assert "int64 scalars of shape" in refused(clients[0], rows, (), [("take", (0, 2), None)])
    assert "runtime scalars" in refused(clients[0], rows, (), [("take", (0, 1), None)])


@pytest.mark.parametrize("place", [-1, 9])
def test_slots_and_columns_that_are_not_there(clients, place):
    rows = Rows([X], [np.array([0, place])])
    assert "slots of the space" in refused(clients[2], rows, (), [("take", (0, 1), None)])
    chosen = rows.step("take_columns", 0, 1, row=(2,))
    assert "columns of the table" in refused(clients[2], rows, [chosen])
    short = Rows([X], [np.zeros((8, 3))])
    held = short.step("slots", 1, row=(3,))
    assert "a row for each slot" in refused(clients[2], short, [held])


def test_what_a_program_takes_along_is_small(clients):
    rows = Rows([np.zeros((2, 700))], [np.zeros((700, 700))])
    product = rows.step("matmul", 0, 1)
    with pytest.raises(ValueError, match="are 3,920,000 bytes, and a message has room for"):
        rows.run(clients[1], [product])


def test_names_of_row_ops_are_their_own():
    for name in ("matmul", "row_sum", "add"):
        with pytest.raises(ValueError, match=f"an op '{name}' already"):
            row_ops.register(row_ops.RowOp(name, 1, lambda *_: None, lambda *_: None))
