"""How arrays print: NumPy's text, of the elements that NumPy prints, and no others are brought."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.testing.strategies import dtypes, vectors

Options = dict[str, Any]


def options() -> st.SearchStrategy[Options]:
    """What a user may tell ``np.set_printoptions``."""
    return st.fixed_dictionaries(
        {},
        optional={
            "edgeitems": st.integers(1, 5),
            "threshold": st.sampled_from([0, 5, 10, 100]),
            "linewidth": st.sampled_from([30, 75, 200]),
            "precision": st.integers(0, 10),
            "suppress": st.booleans(),
            "sign": st.sampled_from("-+ "),
            "floatmode": st.sampled_from(["fixed", "unique", "maxprec", "maxprec_equal"]),
        },
    )


@settings(max_examples=50)
@given(st.data(), dtypes(), st.sampled_from([0, 1, 2, 5, 6, 7, 11, 1000, 1001, 3000]), options())
def test_vectors_print_as_numpys(
    sessions: dict[int, dv.Session], data: st.DataObject, dtype: str, length: int, given: Options
) -> None:
    host = data.draw(vectors(length, dtype))
    x = sessions[3].array(host)
    with np.printoptions(**given):
        assert str(x) == str(host)
        assert elements(repr(x)) == elements(repr(host))


@settings(max_examples=40)
@given(
    st.data(),
    dtypes(),
    st.sampled_from([0, 1, 5, 7, 1000, 1500]),
    st.sampled_from([1, 2, 7, 40]),
    options(),
)
def test_tables_print_as_numpys(
    sessions: dict[int, dv.Session],
    data: st.DataObject,
    dtype: str,
    length: int,
    width: int,
    given: Options,
) -> None:
    host = data.draw(vectors(length * width, dtype)).reshape(length, width)
    table = sessions[3].array(host)
    with np.printoptions(**given):
        assert str(table) == str(host)
        assert elements(repr(table)) == elements(repr(host))


def elements(text: str) -> str:
    """What stands between the brackets; how lines break depends on the name before them."""
    return " ".join(text[text.index("[") : text.rindex("]") + 1].split())


def test_dtype_and_shape_stand_behind_the_elements(ps: dv.Session) -> None:
    assert repr(ps.arange(3)) == "DistArray([0, 1, 2], dtype=int64, shape=(3,))"
    assert repr(ps.zeros(0)) == "DistArray([], dtype=float64, shape=(0,))"
    assert repr(ps.arange(3).sum()) == "DistArray(3, dtype=int64, shape=())"
    assert str(ps.ones(2) > 0) == "[ True  True]"
    with np.printoptions(linewidth=40):
        assert repr(ps.arange(8.0)) == (
            "DistArray([0., 1., 2., 3., 4., 5., 6.,\n"
            "           7.],\n"
            "          dtype=float64, shape=(8,))"
        )


@pytest.mark.parametrize("show", [repr, str])
def test_the_ends_of_a_long_array_come_and_no_more(ps: dv.Session, show: Any) -> None:
    x = ps.array(np.arange(1e6)).persist()
    ps.counters.reset()
    show(x)
    assert ps.counters.messages_per_server == [1, 1]
    assert ps.counters.bytes_received < 500
    with np.printoptions(threshold=10**9, edgeitems=10**9):
        show(x)
    assert ps.counters.bytes_received < 85_000, "never the whole vector"


def test_the_ends_of_a_table_are_its_first_and_last_rows(ps: dv.Session) -> None:
    table = ps.array(np.arange(200_000.0).reshape(5000, 40)).persist()
    ps.counters.reset()
    repr(table)
    assert ps.counters.messages_per_server == [1, 1]
    assert 6 * 40 * 8 < ps.counters.bytes_received < 6 * 40 * 8 + 200


def test_what_the_client_keeps_prints_as_numpys(ps: dv.Session) -> None:
    host = np.random.default_rng(0).normal(size=(3000, 40))
    gram = ps.array(host)
    gram = gram.T @ gram
    assert str(gram) == str(gram.numpy())
    ps.counters.reset()
    assert elements(repr(gram)) == elements(repr(gram.numpy()))
    assert ps.counters.messages == 0


def test_what_is_printed_is_evaluated_once(ps: dv.Session) -> None:
    x = ps.array(np.arange(3000.0)) * 2.0
    assert str(x) == "[0.000e+00 2.000e+00 4.000e+00 ... 5.994e+03 5.996e+03 5.998e+03]"
    assert (ps.counters.programs, ps.implicit_evaluations, ps.implicit_transfers) == (1, 1, 1)
