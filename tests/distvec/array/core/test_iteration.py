"""``for`` over arrays: elements of small ones, batches of large ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.testing.strategies import dtypes, lengths, vectors


@settings(max_examples=25)
@given(st.data(), dtypes(), lengths())
def test_elements_are_numpys(
    sessions: dict[int, dv.Session], data: st.DataObject, dtype: str, length: int
) -> None:
    host = data.draw(vectors(length, dtype))
    x = sessions[3].array(host)
    for ours, theirs in zip(x, host, strict=True):
        assert type(ours) is type(theirs)
        assert ours.tobytes() == theirs.tobytes()
    assert repr(x.tolist()) == repr(host.tolist())
    assert (1 in x) == (1 in host)


@settings(max_examples=25)
@given(st.sampled_from([1, 2, 7]), lengths(), st.data())
def test_blocks_are_the_array_in_order(
    sessions: dict[int, dv.Session], servers: int, length: int, data: st.DataObject
) -> None:
    host = np.arange(length, dtype=np.float64) + 0.5
    size = data.draw(st.sampled_from([1000, 1024, 5000]))
    blocks = list(sessions[servers].array(host).blocks(size))
    assert [len(block) for block in blocks] == [
        min(size, length - start) for start in range(0, length, size)
    ]
    assert np.concatenate([host[:0], *blocks]).tobytes() == host.tobytes()


@settings(max_examples=25)
@given(st.sampled_from([1, 3, 7]), st.sampled_from([0, 1, 1025, 3000]), st.sampled_from([1, 3]))
def test_rows_of_tables(
    sessions: dict[int, dv.Session], servers: int, length: int, width: int
) -> None:
    host = np.arange(length * width, dtype=np.float64).reshape(length, width)
    table = sessions[servers].array(host)
    assert all((ours == theirs).all() for ours, theirs in zip(table, host, strict=True))
    assert table.tolist() == host.tolist()
    blocks = list(table.blocks(1000))
    assert [block.shape for block in blocks[:-1]] == [(1000, width)] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate([host[:0], *blocks]), host)


def test_what_the_client_keeps(ps: dv.Session) -> None:
    table = ps.array(np.arange(6.0).reshape(3, 2))
    totals = table.sum(axis=0)
    assert list(totals) == totals.tolist() == [6.0, 9.0]
    assert [block.tolist() for block in totals.blocks(1)] == [[6.0], [9.0]]
    assert [row.tolist() for row in table.T @ table] == [[20.0, 26.0], [26.0, 35.0]]


def test_a_loop_costs_one_read(ps: dv.Session) -> None:
    x = (ps.arange(10_000) * 2).persist()
    ps.counters.reset()
    assert sum(x) == 99_990_000
    assert ps.counters.messages_per_server == [1, 1]
    first, *_, last = x
    assert (first, last) == (0, 19_998)
    with pytest.raises(
        TypeError, match=r"iterate over 10001 elements.*x\.blocks\(\).*x\.numpy\(\)"
    ):
        iter(ps.arange(10_001))
    with pytest.raises(TypeError, match="iteration over a 0-d array"):
        iter(x.sum())
    assert x.sum().tolist() == 99_990_000


def test_a_block_costs_one_message_to_who_holds_it(ps: dv.Session) -> None:
    x = ps.array(np.arange(4 << 20, dtype=np.float64)).persist()
    ps.counters.reset()
    sizes = [block.size for block in x.blocks()]
    assert sizes == [1 << 20] * 4, "8 MiB each"
    assert ps.counters.messages_per_server == [2, 2]
    assert ps.counters.bytes_sent < 2000
    assert ps.implicit_transfers == 0
    table = ps.array(np.zeros((1 << 14, 128)))
    assert [block.shape for block in table.blocks()] == [(1 << 13, 128)] * 2


def test_blocks_are_of_one_moment(ps: dv.Session) -> None:
    x = ps.arange(3000)
    blocks = x.blocks(1000)
    x += 1
    first = next(blocks)
    x *= 5
    x.persist()
    np.testing.assert_array_equal(np.concatenate([first, *blocks]), np.arange(3000))
    assert x.tolist()[:3] == [5, 10, 15]


def test_refusals(ps: dv.Session) -> None:
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"size must be 1 or more, got {size}"):
            ps.ones(3).blocks(size)
    with pytest.raises(TypeError, match="float"):
        ps.ones(3).blocks(2.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"x\.item\(\)"):
        ps.ones(3).sum().blocks()
