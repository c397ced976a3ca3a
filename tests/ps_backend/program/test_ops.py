"""The op table and the random numbers: internal consistency, and published values."""

from __future__ import annotations

import string

import numpy as np
import pytest

from ps_backend.program import ops, philox


@pytest.mark.parametrize("name", sorted(ops.TABLE))
def test_each_row_is_consistent(name: str) -> None:
    op = ops.TABLE[name]
    if isinstance(op.numpy, np.ufunc):
        assert op.numpy.nin == op.arity and op.numpy.nout == 1
    fields = {int(f) for _, f, _, _ in string.Formatter().parse(op.numba) if f is not None}
    assert fields <= set(range(op.arity))
    for other in filter(None, (op.on_bool, op.on_int)):
        assert ops.TABLE[other].arity == op.arity


def test_philox_gives_the_published_values() -> None:
    """Known answers of Philox4x32-10, from the Random123 distribution of the paper's authors."""
    ones = 0xFFFFFFFF
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    cases = [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ones,) * 4, (ones,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (pi, (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]
    for counter, key, expected in cases:
        assert " ".join(f"{int(word):08x}" for word in philox.words(counter, key)) == expected


def test_uniform_numbers_are_in_the_unit_interval_and_depend_on_key_and_index() -> None:
    index = np.arange(10_000)
    first, second = philox.uniform(1, index), philox.uniform(2, index)
    assert (first >= 0).all() and (first < 1).all()
    assert (first != second).all() and len(np.unique(first)) == len(first)
    assert (philox.uniform(1, index[5000:]) == first[5000:]).all()


def test_normal_numbers_are_those_of_box_and_muller() -> None:
    index = np.arange(100_000)
    radius = np.sqrt(-2.0 * np.log(1.0 - philox.uniform(1, index)))
    expected = radius * np.cos(2.0 * np.pi * philox.uniform(2, index))
    np.testing.assert_allclose(philox.normal(1, 2, index), expected, rtol=1e-14, atol=4e-15)
    assert philox.normal(1, 2, 7) == philox.normal(1, 2, index)[7]
