"""Running results chunk by chunk, compiled and by NumPy, against NumPy's of the whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ps_backend.kernels.collectives import running
from ps_backend.program.collectives import SCANS, Scan

RNG = np.random.default_rng(0)
ROWS = 200
COMPILED, BY_NUMPY = running.COMPILED_FROM, 1
SPECIAL = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 0.25])


def table(dtype: str, width: int) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return RNG.uniform(0.5, 1.5, (ROWS, width)).astype(kind)
    return RNG.integers(0, 2 if kind.kind == "b" else 100, (ROWS, width)).astype(kind)


def found(scan: Scan, x: np.ndarray, elements: int) -> np.ndarray:
    """By blocks of half as many rows, the second one from the total of the first one."""
    dtype = scan.result(x.dtype)
    wide = scan.accumulator(dtype)
    start = np.full((1, x.shape[1]), scan.start(wide), wide)
    blocks, y = x.reshape(2, -1, x.shape[1]), np.empty(x.shape, dtype)
    total = start.copy()
    running.total(scan, blocks[:1], total, elements)
    entering, into = np.concatenate((start, total)), y.reshape(blocks.shape)
    if scan.ufunc is np.add:
        running.running_sums(scan, blocks, entering, into, elements)
    else:
        running.accumulate(scan, blocks, entering, into, elements)
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
    """In one block the bits of NumPy's sequential results, in float64, too."""
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
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 50, 1), (1, 1, 3), (4, 50, 3)])
@pytest.mark.parametrize("width", [1, 3])
def test_recurrences_have_the_bits_of_the_loop(
    width: int, shape: tuple[int, int, int], elements: int
) -> None:
    if shape[2] > width:
        return
    a, b = RNG.uniform(-1.1, 1.1, shape), RNG.standard_normal((4, 50, width))
    states, y = RNG.standard_normal((4, width)), np.empty(b.shape)
    expected, last = np.empty(b.shape), states.copy()
    for t in range(50):
        expected[:, t] = last = np.broadcast_to(a, b.shape)[:, t] * last + b[:, t]
    ends = states.copy()
    running.recur(a, b, states.copy(), y, elements)
    running.recur(a, b, ends, None, elements)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(ends, last)


def value(pair: tuple[Any, Any]) -> Any:
    return np.ldexp(pair[0], pair[1].astype(np.int32))


@pytest.mark.parametrize("elements", [BY_NUMPY, COMPILED])
def test_scaled_products_keep_their_range(elements: int) -> None:
    for blocks, rows, width in ((1, 1, 1), (3, 700, 2), (1, 40_000, 1)):
        signs = RNG.choice([-1, 1], (blocks, rows, width))
        x = RNG.uniform(0.5, 1.5, signs.shape) * signs * 10.0 ** RNG.integers(-200, 200)
        fraction, exponent = running.product(x, elements)
        assert (np.abs(fraction) >= 0.5).all()
        expected = np.log2(np.abs(x)).sum(axis=1)
        np.testing.assert_allclose(np.log2(np.abs(fraction)) + exponent, expected, rtol=1e-9)
        np.testing.assert_array_equal(np.sign(fraction), np.prod(signs, axis=1))
    fraction, exponent = running.product(np.repeat([2.0, 0.5], 5000).reshape(2, -1, 1), elements)
    up, down = (running.times_scaled(3.0, fraction[k, 0], int(exponent[k, 0])) for k in (0, 1))
    assert (up, down) == (math.inf, 0.0)
    assert value((fraction.prod(), exponent.sum())) == 1.0


@pytest.mark.parametrize("elements", [BY_NUMPY, COMPILED])
def test_scaled_products_of_what_has_no_logarithm(elements: int) -> None:
    with np.errstate(all="ignore"):
        for given in ([0.0, 2.0], [math.inf, 2.0], [math.nan, 2.0], [math.inf, 0.0], [5e-324, 1.0]):
            fraction, exponent = running.product(np.array(given).reshape(1, 2, 1), elements)
            found = running.times_scaled(3.0, fraction[0, 0], int(exponent[0, 0]))
            np.testing.assert_array_equal(found, 3.0 * np.prod(given))


def test_carries_are_those_of_the_loop() -> None:
    factors, terms = RNG.uniform(-2, 2, (7, 3)), RNG.standard_normal((7, 3))
    fractions, shifts = np.frexp(factors)
    values = [RNG.standard_normal(3)]
    for factor, term in zip(factors, terms, strict=True):
        values.append(factor * values[-1] + term)
    found = running.scaled_recurrence(values[0], (fractions, shifts.astype(np.int64)), terms)
    np.testing.assert_array_equal(found, values)


def test_powers() -> None:
    base = np.array([0.9, -1.1, 0.0, 1.0])
    for count in (0, 1, 7, 1024):
        np.testing.assert_allclose(
            value(running.scaled_power(base, count)), base**count, rtol=1e-12
        )
