"""Running results chunk by chunk, compiled and by NumPy, against NumPy's of the whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ps_backend.kernels.moving import running, scaled
from ps_backend.program.scans import SCANS, Scan

RNG = np.random.default_rng(0)
ROWS = 200
COMPILED, BY_NUMPY = running.COMPILED_FROM, 1
SPECIAL = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-3])


def table(dtype: str, width: int) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return RNG.uniform(0.5, 1.5, (ROWS, width)).astype(kind)
    return RNG.integers(0, 2 if kind.kind == "b" else 100, (ROWS, width)).astype(kind)


def found(scan: Scan, x: np.ndarray, elements: int, chunk: int = 64) -> np.ndarray:
    dtype = scan.result(x.dtype)
    wide = scan.accumulator(dtype)
    loop = running.loop_of(scan, wide, elements)
    state = np.full(x.shape[1], scan.start(wide), wide)
    scratch, y = np.empty((chunk, x.shape[1]), wide), np.empty(x.shape, dtype)
    running.write(loop, x, state, y, scratch)
    again = np.full(x.shape[1], scan.start(wide), wide)
    running.advance(loop, x, again, scratch)
    np.testing.assert_array_equal(state, again)
    return y


@pytest.mark.parametrize("elements", [BY_NUMPY, COMPILED])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int8", "uint64", "bool"])
@pytest.mark.parametrize("name", SCANS)
def test_as_numpy(name: str, dtype: str, elements: int) -> None:
    scan = SCANS[name]
    for width in (1, 3):
        x = table(dtype, width)
        try:
            expected = scan.ufunc.accumulate(x, axis=0)
        except TypeError:
            with pytest.raises(TypeError):
                scan.result(x.dtype)
            continue
        ours = found(scan, x, elements)
        assert ours.dtype == expected.dtype
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(ours, expected, rtol=ROWS * np.finfo(expected.dtype).eps)
        else:
            np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("elements", [BY_NUMPY, COMPILED])
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "fmax", "fmin"])
def test_values_at_which_floats_change_their_ways(name: str, elements: int) -> None:
    """The bits of NumPy's sequential results, in float64."""
    scan = SCANS[name]
    for _ in range(50):
        x = RNG.choice(SPECIAL, (12, 1))
        with np.errstate(all="ignore"):
            ours, expected = found(scan, x, elements), scan.ufunc.accumulate(x, axis=0)
        np.testing.assert_array_equal(ours, expected)
        if name in ("add", "multiply"):
            zeros = expected == 0
            np.testing.assert_array_equal(np.signbit(ours)[zeros], np.signbit(expected)[zeros])


@pytest.mark.parametrize("name", SCANS)
def test_the_identity_changes_nothing(name: str) -> None:
    scan = SCANS[name]
    for dtype in ("float64", "int64", "uint64", "bool"):
        values = table(dtype, 1)[:, 0]
        if dtype == "float64":
            values = SPECIAL
        try:
            result = scan.result(values.dtype)
        except TypeError:
            continue
        wide = scan.accumulator(result)
        given = (values != 0).astype(int) if scan.truth else values.astype(wide)
        with np.errstate(all="ignore"):
            joined = scan.ufunc(scan.start(wide), given)
        np.testing.assert_array_equal(joined, given)
        if not name.startswith("logaddexp"):  # which makes -0.0 of nothing
            np.testing.assert_array_equal(np.signbit(joined), np.signbit(given))


@pytest.mark.parametrize("elements", [BY_NUMPY, COMPILED])
@pytest.mark.parametrize("shape", [(1, 1), (ROWS, 1), (1, 3), (ROWS, 3)])
@pytest.mark.parametrize("width", [1, 3])
def test_recurrences_have_the_bits_of_the_loop(
    width: int, shape: tuple[int, int], elements: int
) -> None:
    if shape[1] > width:
        return
    a, b = RNG.uniform(-1.1, 1.1, shape), RNG.standard_normal((ROWS, width))
    expected, last = np.empty((ROWS, width)), RNG.standard_normal(width)
    state, y = last.copy(), np.empty((ROWS, width))
    for t, (factor, term) in enumerate(zip(np.broadcast_to(a, b.shape), b, strict=True)):
        expected[t] = last = factor * last + term
    again = state.copy()
    running.recur(a, b, state, y, elements)
    running.recur(a, b, again, np.empty((7, width)), elements)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(state, last)
    np.testing.assert_array_equal(again, last)


def value(pair: tuple[Any, Any]) -> Any:
    return np.ldexp(pair[0], pair[1].astype(np.int32))


def test_scaled_products_keep_their_range() -> None:
    for width, rows in ((1, 1), (2, 700), (1, 40_000)):
        x = RNG.uniform(0.5, 1.5, (rows, width)) * RNG.choice([-1, 1], (rows, width))
        fraction, exponent = scaled.product(x)
        assert (np.abs(fraction) >= 0.5).all()
        expected = np.log2(np.abs(x)).sum(axis=0)
        np.testing.assert_allclose(np.log2(np.abs(fraction)) + exponent, expected, rtol=1e-9)
        np.testing.assert_array_equal(np.sign(fraction), np.prod(np.sign(x), axis=0))
    up, down = scaled.product(np.full((5000, 1), 2.0)), scaled.product(np.full((5000, 1), 0.5))
    with np.errstate(all="ignore"):
        assert scaled.times(np.array([3.0]), up) == math.inf
        assert scaled.times(np.array([3.0]), down) == 0.0
    assert value((up[0] * down[0], up[1] + down[1])) == 1.0


def test_scaled_products_of_what_has_no_logarithm() -> None:
    with np.errstate(all="ignore"):
        for given in ([0.0, 2.0], [math.inf, 2.0], [math.nan, 2.0], [math.inf, 0.0], [5e-324, 1.0]):
            found = scaled.times(np.array([3.0]), scaled.product(np.array(given)[:, None]))
            np.testing.assert_array_equal(found, 3.0 * np.prod(given))


def test_powers() -> None:
    base = np.array([0.9, -1.1, 0.0, 1.0])
    for count in (0, 1, 7, 1024):
        np.testing.assert_allclose(value(scaled.power(base, count)), base**count, rtol=1e-12)
