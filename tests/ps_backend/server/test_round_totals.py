"""Several arrays in one round, sparse and dense, by add, min and max: the bits are NumPy's."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import BufferLost, PSError, RoundClosed
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.wire.protocol import Total, Winner
from tests.ps_backend.helpers import in_process, put

COMBINE = {"add": np.add, "min": np.minimum, "max": np.maximum}
SPACES = (DenseSpace(4000), DenseSpace(7))
DTYPES = (np.dtype(np.float64), np.dtype(np.float32))
START = [
    np.random.default_rng(9).standard_normal(space.length).astype(dtype)
    for space, dtype in zip(SPACES, DTYPES, strict=True)
]


class Contribution(NamedTuple):
    slot: int
    indices: np.ndarray | None
    values: np.ndarray


class Attempt(NamedTuple):
    """An attempt of a partition; it stages what the others do, or the beginning of that."""

    partition: int
    number: int
    contributions: list[Contribution]


def contributions(seed: int) -> list[Contribution]:
    """Magnitudes differ, so that the order of a sum shows in its bits."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(rng.integers(0, 4)):
        slot = int(rng.integers(len(SPACES)))
        length = SPACES[slot].length
        indices = None if rng.random() < 0.4 else rng.integers(0, length, rng.integers(0, 50))
        values = rng.standard_normal(length if indices is None else len(indices))
        scaled = values * 10.0 ** rng.integers(-6, 6)
        made.append(Contribution(slot, indices, scaled.astype(DTYPES[rng.integers(2)])))
    return made


@st.composite
def attempts(draw) -> tuple[list[Attempt], list[Attempt]]:
    """All attempts, and those that win: one of each partition, which staged everything."""
    everyone, winners = [], []
    for partition in range(draw(st.integers(0, 4))):
        whole = contributions(draw(st.integers(0, 10**6)))
        cuts = draw(st.lists(st.integers(0, len(whole)), max_size=2))
        made = [Attempt(partition, k, whole[:cut]) for k, cut in enumerate(cuts)]
        winner = Attempt(partition, len(cuts), whole)
        everyone += [*made, winner]
        winners.append(winner)
    return everyone, winners


def stage_all(client: Client, order: list[Attempt]) -> None:
    """Each time an attempt occurs in ``order`` it stages its next contribution."""
    done: Counter[tuple[int, ...]] = Counter()
    for partition, number, made in order:
        contribution = made[done[partition, number]]
        slot, indices, values = contribution
        client.stage(
            "r",
            partition,
            number,
            SPACES[slot],
            indices,
            values,
            slot=slot,
            number=done[partition, number, slot],
        )
        done[partition, number] += 1
        done[partition, number, slot] += 1


def totals(client: Client, winners: list[Attempt], op: str, sources: list[int | None]):
    return [
        Total(
            client.new_id(),
            array_type(SPACES[slot], DTYPES[slot]),
            [
                Winner(one.partition, one.number, sum(c.slot == slot for c in one.contributions))
                for one in winners
            ],
            source=sources[slot],
            op=op,
            slot=slot,
        )
        for slot in range(len(SPACES))
    ]


def expected(winners: list[Attempt], op: str, slot: int, *, from_zeros: bool) -> np.ndarray:
    total = np.zeros_like(START[slot]) if from_zeros else START[slot].copy()
    for winner in winners:
        for to, indices, values in winner.contributions:
            if to == slot and indices is None:
                COMBINE[op](total, values.astype(total.dtype), out=total)
            elif to == slot:
                COMBINE[op].at(total, indices, values.astype(total.dtype))
    return total


@given(
    attempts(),
    st.randoms(use_true_random=False),
    st.sampled_from(sorted(COMBINE)),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
)
def test_any_interleaving_of_attempts_gives_the_bits_of_numpy(made, random, op, servers, zeros):
    everyone, winners = made
    order = [one for one in everyone for _ in one.contributions]
    random.shuffle(order)
    with connect_in_process(servers, memory=1 << 26) as client:
        sources = [put(client, *pair) for pair in zip(SPACES, START, strict=True)]
        stage_all(client, order)
        wanted = totals(client, winners, op, [None, None] if zeros else sources)
        client.commit_totals("r", wanted)
        for slot, (total, source) in enumerate(zip(wanted, sources, strict=True)):
            got = client.read(total.target, array_type(SPACES[slot], DTYPES[slot]))
            assert got.tobytes() == expected(winners, op, slot, from_zeros=zeros).tobytes()
            kept = client.read(source, array_type(SPACES[slot], DTYPES[slot]))
            assert kept.tobytes() == START[slot].tobytes()
        with pytest.raises(RoundClosed):
            client.stage("r", 9, 0, SPACES[0], [0], [1.0])


def test_dense_contributions_over_both_transports(connect):
    client = connect(3)
    client.stage("r", 0, 5, SPACES[0], None, START[0])
    total = Total(client.new_id(), array_type(SPACES[0], DTYPES[0]), [Winner(0, 5)])
    client.commit_totals("r", [total])
    assert (
        client.read(total.target, array_type(SPACES[0], DTYPES[0])).tobytes() == START[0].tobytes()
    )
    with pytest.raises(ValueError, match=r"must have shape \(7,\), got \(4000,\)"):
        client.stage("s", 0, 0, SPACES[1], None, START[0])


def test_an_attempt_cut_short_on_one_server_changes_nothing_anywhere():
    transports = in_process(3)
    whole = [Contribution(0, None, START[0]), Contribution(1, None, START[1])]
    winner = Attempt(0, 0, whole)
    with Client(transports) as client:
        sources = [put(client, *pair) for pair in zip(SPACES, START, strict=True)]
        stage_all(client, [winner])
        wanted = totals(client, [winner], "add", sources)
        with pytest.raises(PSError, match=r"this server has no updates of.*\(0, 0\)"):
            client.commit_totals("r", wanted)
        for total, space, dtype in zip(wanted, SPACES, DTYPES, strict=True):
            with pytest.raises(BufferLost):
                client.read(total.target, array_type(space, dtype))
        stage_all(client, [winner, winner])
        client.commit_totals("r", wanted)
        got = client.read(wanted[1].target, array_type(SPACES[1], DTYPES[1]))
        assert got.tobytes() == (START[1] + START[1]).tobytes()


def test_a_commit_of_several_arrays_is_one_message():
    with connect_in_process(1) as client:
        sources = [put(client, *pair) for pair in zip(SPACES, START, strict=True)]
        client.counters.reset()
        client.commit_totals("r", totals(client, [], "add", sources))
        assert client.counters.messages == 1


def test_refusals_leave_the_round_open():
    with connect_in_process(2) as client:
        client.stage("r", 0, 0, SPACES[1], [0], [1.0])
        kind = array_type(SPACES[1], DTYPES[1])
        lost = Total(client.new_id(), kind, [Winner(0, 0)], source=12345)
        with pytest.raises(BufferLost):
            client.commit_totals("r", [lost])
        with pytest.raises(ValueError, match=r"op='sum'.*add, min, max"):
            client.commit_totals("r", [Total(1, kind, [Winner(0, 0)], op="sum")])
        with pytest.raises(ValueError, match="each attempt can win once"):
            client.commit_totals("r", [Total(1, kind, [Winner(0, 0)] * 2)])
        good = Total(client.new_id(), kind, [Winner(0, 0)])
        client.commit_totals("r", [good])
        assert client.read(good.target, array_type(SPACES[1], DTYPES[1]))[0] == 1.0
