"""Rows where a mask is true: chosen on each server, and put back there."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from ps_backend.client import Client
from ps_backend.errors import InvalidProgram
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace, RaggedSpace
from ps_backend.program.types import array_type
from tests.ps_backend.helpers import put


def ragged(client: Client, mask: np.ndarray) -> RaggedSpace:
    """As much on each server as ``mask`` is true there."""
    space = DenseSpace(len(mask))
    ranges = [space.range_of(server, client.servers) for server in range(client.servers)]
    cuts = np.cumsum([0, *(mask[low:high].sum() for low, high in ranges)])
    return RaggedSpace(int(mask.sum()), 0, tuple(map(int, cuts)))


@settings(max_examples=20)
@given(
    length=st.sampled_from((1, 5, 1024, 5000, 100_000)),
    servers=st.sampled_from((1, 2, 3, 7)),
    row=st.sampled_from(((), (3,))),
    share=st.sampled_from((0.0, 0.1, 1.0)),
)
def test_as_numpy(length: int, servers: int, row: tuple[int, ...], share: float) -> None:
    rng = np.random.default_rng(length)
    values, mask = rng.standard_normal((length, *row)), rng.random(length) < share
    mask[-1] = True
    with connect_in_process(servers) as client:
        space, chosen = DenseSpace(length), ragged(client, mask)
        source, places = put(client, space, values), put(client, space, mask)
        type = array_type(space, float, row)
        target, back = client.new_id(), client.new_id()
        client.counters.reset()
        client.compress(source, type, places, target, chosen)
        assert client.counters.messages == 1
        found = client.read(target, array_type(chosen, float, row))
        np.testing.assert_array_equal(found, values[mask])
        added = put(client, chosen, found + 1)
        client.expand(source, type, places, added, back, chosen)
        values[mask] += 1
        np.testing.assert_array_equal(client.read(back, type), values)


def test_another_number_of_rows_is_refused() -> None:
    with connect_in_process(2) as client:
        space, mask = DenseSpace(3000), np.arange(3000) < 2000
        source, places = put(client, space, np.ones(3000)), put(client, space, mask)
        type, chosen = array_type(space, float), ragged(client, np.arange(3000) < 1999)
        with pytest.raises(InvalidProgram, match="the mask selects"):
            client.compress(source, type, places, client.new_id(), chosen)
        values = put(client, chosen, np.ones(1999))
        with pytest.raises(InvalidProgram, match="the mask selects"):
            client.expand(source, type, places, values, client.new_id(), chosen)


def test_cuts_are_checked() -> None:
    for cuts in ((), (0,), (0, 3), (1, 4), (0, 3, 2, 4)):
        with pytest.raises(ValueError, match="cuts must"):
            RaggedSpace(4, 0, cuts)
    space = RaggedSpace(4, 0, (0, 3, 4))
    assert RaggedSpace.decode(4, 0, space.details) == space != RaggedSpace(4, 0, (0, 2, 4))
    with pytest.raises(ValueError, match="cut for 2 servers, not for 3"):
        space.range_of(0, 3)
