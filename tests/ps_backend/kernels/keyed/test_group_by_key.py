"""Repeated keys: the rows of each, joined one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.kernels.collectives import sorting as ordered_keys
from ps_backend.kernels.keyed import group_by_key
from ps_backend.kernels.keyed.group_by_key import group_rows, unique_keys

KEYS = st.lists(
    st.sampled_from([0, -1, -(1 << 63), (1 << 63) - 1, 5, 6, 7]) | st.integers(-300, 300),
    max_size=60,
)
JOINS = {"add": np.add, "min": np.minimum, "max": np.maximum, "replace": lambda old, new: new}


@pytest.fixture(params=["NumPy", "compiled"])
def engine(request, monkeypatch):
    least = 1 if request.param == "compiled" else 1 << 60
    for module in (group_by_key, ordered_keys):
        monkeypatch.setattr(module, "COMPILED_FROM", least)


@pytest.mark.usefixtures("engine")
def test_beside_a_dict():
    @settings(max_examples=80, deadline=None)
    @given(
        KEYS,
        st.sampled_from(sorted(JOINS)),
        st.sampled_from([(), (1,), (3,), (2, 2)]),
        st.sampled_from(["float64", "float32", "float16", "int64", "uint8"]),
    )
    def check(keys, op, row, dtype):
        given = np.array(keys, np.int64)
        rng = np.random.default_rng(len(keys))
        values = (rng.standard_normal((len(keys), *row)) * 50).astype(dtype)
        if values.dtype.kind == "f":
            values[values == 0] = -0.0
        rows = {}
        for key, value in zip(keys, values, strict=True):
            rows[key] = JOINS[op](rows[key], value) if key in rows else value
        different, joined, inverse = group_rows(given, values, op)
        assert different.dtype == inverse.dtype == np.int64 and joined.dtype == dtype
        assert different.tolist() == sorted(rows)
        assert different[inverse].tolist() == keys
        expected = np.array([rows[key] for key in sorted(rows)], dtype)
        assert joined.tobytes() == expected.tobytes()

    check()


def test_many_rows_of_few_keys():
    keys = np.random.default_rng(0).integers(-50, 50, 70_000)
    different, inverse = unique_keys(keys)
    assert np.array_equal(different, np.unique(keys))
    assert np.array_equal(different[inverse], keys)
