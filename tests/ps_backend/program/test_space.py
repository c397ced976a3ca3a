"""How a dense space is split: by its length and the number of servers alone."""

from __future__ import annotations

import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import NodeType, array_type, client_type

LENGTHS = st.integers(0, 10_000) | st.integers(0, 1 << 40)


@given(length=LENGTHS, servers=st.integers(1, 40))
def test_ranges_cover_the_space_in_order_at_block_boundaries(length: int, servers: int) -> None:
    space = DenseSpace(length)
    end = 0
    for server in range(servers):
        low, high = space.range_of(server, servers)
        assert low == end and low <= high
        end = high
        assert low % space.block_size == 0 or low == length
        assert (server in space.holders(servers)) == (low < high or (length == 0 and server == 0))
    assert end == length


@given(length=LENGTHS)
def test_blocks_are_powers_of_two_and_few(length: int) -> None:
    space = DenseSpace(length)
    assert space.block_size >= 1024 and space.block_size & (space.block_size - 1) == 0
    assert space.blocks <= 1024
    assert (
        (space.blocks - 1) * space.block_size
        < max(length, 1)
        <= max(space.blocks, 1) * space.block_size
    )


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"length must be 0 \.\. \d+, got -1"):
        DenseSpace(-1)


@pytest.mark.parametrize(
    "type", [client_type(np.dtype(float), (3,)), array_type(DenseSpace(5), float, (2,))], ids=str
)
def test_types_travel_to_tasks(type: NodeType) -> None:
    again = pickle.loads(pickle.dumps(type))
    assert again == type and hash(again) == hash(type) and again.value == type.value
