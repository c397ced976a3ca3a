"""Random programs give what NumPy gives: on any number of servers, whatever is flushed when."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.runtime import liveness
from distvec.testing import (
    Program,
    Refused,
    assert_same_reads,
    engine,
    faults,
    lossy_session,
    programs,
    server_counts,
    server_machine,
)
from ps_backend.program.types import DTYPES


def run(program: Program, session: dv.Session) -> dict[str, object]:
    return program.run(server_machine(session))


def bits(reads: dict[str, object]) -> dict[str, object]:
    """What was read, in a form that tells NaNs and zeros apart by their bits."""
    return {
        place: read if isinstance(read, Refused) else (np.asarray(read).tobytes())
        for place, read in reads.items()
    }


@settings(max_examples=120)
@given(program=programs(), servers=server_counts(), depth=st.sampled_from((1, 2, 5, 512)))
def test_random_programs_agree_with_numpy(program: Program, servers: int, depth: int) -> None:
    """``depth``: also where almost every operation is sent off by itself."""
    with dv.local(servers=servers, in_process=True) as session:
        session.pending_depth = depth
        assert_same_reads(program, run(program, session))


@given(program=programs(), servers=st.sampled_from((2, 3, 7)), nodes=st.sampled_from((1, 7, 4096)))
def test_the_number_of_servers_changes_no_bit(program: Program, servers: int, nodes: int) -> None:
    seen = []
    for count in (1, servers):
        with dv.local(servers=count, in_process=True) as session:
            session.pending_nodes = nodes
            seen.append(bits(run(program, session)))
    assert seen[0] == seen[1]


@given(first=programs(max_instructions=8), second=programs(max_instructions=8))
@settings(max_examples=50)
def test_what_ran_before_changes_nothing(
    sessions: dict[int, dv.Session], first: Program, second: Program
) -> None:
    """Plans, kernels and inner products that a session remembers fit the next program too."""
    session = sessions[3]
    before = bits(run(first, session))
    assert_same_reads(second, run(second, session))
    assert bits(run(first, session)) == before


@given(program=programs(max_instructions=5))
@settings(max_examples=8)
def test_compiled_kernels_agree_with_numpy(program: Program) -> None:
    """Few examples: each new structure takes half a second to compile."""
    with engine("numba"), dv.local(servers=2, in_process=True) as session:
        assert_same_reads(program, run(program, session))


@given(program=programs())
@settings(max_examples=50)
def test_no_buffer_outlives_its_names(program: Program) -> None:
    with dv.local(servers=2, in_process=True) as session:
        machine = server_machine(session)
        program.run(machine)
        machine.variables.clear()

        session.array([0.0])  # frees leave with the next message
        session.array([0.0])
        assert max(status.buffers for status in session.client.status()) <= 2


@given(program=programs(min_length=1), servers=server_counts(), limit=st.sampled_from((0.0, 1e4)))
@settings(max_examples=120)
def test_memory_taken_over_from_dying_vectors_changes_nothing(
    program: Program, servers: int, limit: float
) -> None:
    """As from 1 MiB on; here for any length, and with plans that are run again as digits cancel."""
    with (
        mock.patch.object(liveness, "LEAST_BYTES", 0),
        dv.local(servers=servers, in_process=True) as session,
    ):
        session.cancellation_limit = limit
        assert_same_reads(program, run(program, session))


@given(program=programs(), servers=st.sampled_from((1, 3)), lost=faults())
@settings(max_examples=50)
def test_lost_messages_change_no_bit(program: Program, servers: int, lost: list[str]) -> None:
    with dv.local(servers=servers, in_process=True) as session:
        undisturbed = bits(run(program, session))
    with mock.patch.object(liveness, "LEAST_BYTES", 0), lossy_session(servers, lost) as session:
        assert bits(run(program, session)) == undisturbed


def test_three_operations_on_float32(ps: dv.Session) -> None:
    values = np.arange(5, dtype=np.float32)
    x = ps.array(values)
    np.testing.assert_array_equal((0.5 * x - x / 4.0).numpy(), 0.5 * values - values / 4.0)


def test_a_plan_is_not_taken_for_that_of_another_dtype(ps: dv.Session) -> None:
    """The same operations on the same buffer; only what they cast to is another."""
    values = np.array([0.0, 1.5, -2.5])
    x = ps.array(values)
    for name in DTYPES:
        cast = x.astype(name)
        expected = values.astype(name)
        got = np.where(x > 0, cast, cast)
        np.testing.assert_array_equal(got.numpy(), expected, strict=True)


def test_in_place_on_a_scalar_spares_its_other_names(ps: dv.Session) -> None:
    """On NumPy a reduction gives an immutable scalar, so that ``+=`` binds a new one."""
    value = ps.array([1.0, 2.0]).sum()
    best = value
    value += 1.0
    assert float(best) == 3.0
