"""Losses by their definitions: to 60 digits, and derivatives by differences of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from distvec.losses.loss import Arrays, Loss, shape_of
from distvec.losses.rows import Rows

mp = mpmath.mp.clone()
mp.dps = 60
_STEP = mp.mpf(10) ** -18

exact = np.frompyfunc(mp.mpf, 1, 1)
exp = np.frompyfunc(mp.exp, 1, 1)
log = np.frompyfunc(mp.log, 1, 1)

Value = Callable[..., Any]
"""A loss by its definition: of arrays of numbers of 60 digits."""


def gradients(value: Value, arrays: Arrays) -> list[np.ndarray]:
    """By central differences, good to 30 digits."""
    return directional(lambda *at: [value(*at)], arrays)


def directional(function: Callable[..., list[Any]], arrays: Arrays) -> list[np.ndarray]:
    found = []
    for number, array in enumerate(arrays):
        gradient = np.zeros(array.shape, object)
        for place in np.ndindex(array.shape):
            ends = []
            for step in (_STEP, -_STEP):
                moved = [exact(each) for each in arrays]
                moved[number][place] += step
                ends.append(function(*moved)[0])
            gradient[place] = (ends[0] - ends[1]) / (2 * _STEP)
        found.append(gradient)
    return found


def product(value: Value, arrays: Arrays, directions: Arrays) -> list[np.ndarray]:
    """The Hessian times ``directions``, by differences of gradients."""

    def along(*at: Any) -> Any:
        ends = [
            value(*(each + step * exact(way) for each, way in zip(at, directions, strict=True)))
            for step in (_STEP, -_STEP)
        ]
        return (ends[0] - ends[1]) / (2 * _STEP)

    return gradients(along, arrays)


def margins(rows: Rows, table: np.ndarray, *, intercept: bool) -> np.ndarray:
    """``X W [+ intercept] [+ offset]`` in 60 digits."""
    matrix = exact(dense(rows).astype(float))
    found = matrix @ table[: rows.columns] + (table[-1] if intercept else mp.mpf(0))
    if rows.offsets is None:
        return found
    return found + (rows.offsets if found.ndim == 1 else rows.offsets[:, None])


def weights(rows: Rows) -> np.ndarray:
    return exact(np.ones(len(rows)) if rows.weights is None else rows.weights)


def dense(rows: Rows) -> np.ndarray:
    return rows.matrix if isinstance(rows.matrix, np.ndarray) else rows.matrix.toarray()


def sparse(rows: Rows) -> Rows:
    return replace(rows, matrix=sp.csr_array(dense(rows)))


def assert_sums(loss: Loss, value: Value, rows: Rows, arrays: Arrays, *, intercept: bool) -> None:
    """``value`` is the loss by its definition; rounding of the margins is allowed for."""
    found = loss.sums(rows, arrays, intercept=intercept)
    expected = value(*map(exact, arrays))
    size = _size(rows, arrays)
    assert abs(found.value - expected) <= 1e-14 * (
        abs(expected) + float(weights(rows).sum()) * size
    )
    _assert_close(found.gradients, gradients(value, arrays), rows, arrays)


def assert_products(
    loss: Loss, value: Value, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
) -> None:
    found = loss.products(rows, arrays, directions, intercept=intercept)
    expected = product(value, arrays, directions)
    scale = max([1.0, *(np.abs(way).max(initial=0.0) for way in directions)])
    _assert_close(found, expected, rows, arrays, scale * _size(rows, directions))


def _assert_close(
    found: Arrays, expected: list[np.ndarray], rows: Rows, arrays: Arrays, scale: float = 1.0
) -> None:
    for mine, right, array in zip(found, expected, arrays, strict=True):
        assert mine.shape == array.shape
        slack = 1e-14 * scale * mp.mpf(_size(rows, arrays)) ** 2 * (1 + weights(rows).sum())
        assert (np.abs(mine - right) <= slack + 1e-13 * np.abs(right)).all(), (mine, right)


def _size(rows: Rows, arrays: Arrays) -> float:
    """Of the largest margin."""
    columns = 1.0 + np.abs(dense(rows)).sum(axis=1).max(initial=0.0)
    offset = 0.0 if rows.offsets is None else np.abs(rows.offsets).max(initial=0.0)
    return float(1.0 + offset + columns * max(np.abs(array).max(initial=0.0) for array in arrays))


def numbers(least: float, most: float) -> st.SearchStrategy[float]:
    """Zero often, and any others of few digits."""
    return st.just(0.0) | st.floats(least, most).map(lambda x: float(np.float32(x)))


@st.composite
def problems(
    draw: st.DrawFn,
    loss: Loss,
    labels: st.SearchStrategy[float],
    *,
    most_rows: int = 6,
    intercepts: bool = True,
) -> tuple[Rows, Arrays, bool]:
    """Rows, parameters of ``loss`` and whether there is an intercept."""
    count, columns = draw(st.integers(0, most_rows)), draw(st.integers(1, 3))
    column = lambda values: np.array(  # noqa: E731
        draw(st.lists(values, min_size=count, max_size=count)), float
    )
    rows = Rows(
        np.stack([column(numbers(-3, 3)) for _ in range(columns)], axis=1),
        column(labels),
        column(numbers(0, 3)) if draw(st.booleans()) else None,
        column(numbers(-2, 2)) if draw(st.booleans()) else None,
    )
    intercept = draw(st.booleans()) if intercepts else False
    arrays = draw(parameters(loss, columns, intercept=intercept))
    return (sparse(rows) if draw(st.booleans()) else rows), arrays, intercept


@st.composite
def parameters(draw: st.DrawFn, loss: Loss, columns: int, *, intercept: bool) -> Arrays:
    """Such that margins are of the size of 1, or far out."""
    scale = draw(st.sampled_from([1.0, 1.0, 30.0, 1000.0]))
    shapes = [shape_of(one, columns, intercept=intercept) for one in loss.parameters]
    values = [
        draw(st.lists(numbers(-1, 1), min_size=int(np.prod(s)), max_size=int(np.prod(s))))
        for s in shapes
    ]
    return tuple(scale * np.reshape(v, s) for v, s in zip(values, shapes, strict=True))
