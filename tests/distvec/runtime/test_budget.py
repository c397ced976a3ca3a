"""Servers with little memory: what was asked for and fits never fails for what was not asked for.

The servers run as objects in this process and as processes, as these fail at different moments.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from distvec.runtime import liveness

LENGTH = 1 << 17
"""Large enough for vectors to be written in place."""
BYTES = 8 * LENGTH


@pytest.fixture(params=[True, False], ids=["in process", "processes"])
def narrow(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], dv.Session]]:
    """Opens sessions on two servers with a budget."""
    opened: list[dv.Session] = []

    def start(memory: Any) -> dv.Session:
        opened.append(dv.local(servers=2, in_process=request.param, memory=memory))
        return opened[-1]

    yield start
    for session in opened:
        session.close()


def expected_after(steps: int) -> float:
    y = np.arange(100.0)
    for _ in range(steps):
        y = y * 1.001 + 0.5
    return float(y.sum())


def test_an_array_too_large_that_is_never_used_harms_no_other(
    narrow: Callable[[Any], dv.Session],
) -> None:
    ps = narrow("400m")
    big = ps.zeros(200_000_000) + 1
    y = ps.array(np.arange(100.0))
    for _ in range(400):
        y = y * 1.001 + 0.5
    assert float(y.sum()) == pytest.approx(expected_after(400), rel=1e-12)
    with pytest.raises(dv.OutOfBudget, match=r"needs \d{9} bytes.* of the allowed 419430400"):
        big.persist()
    assert float(y.sum()) == pytest.approx(expected_after(400), rel=1e-12)


def test_what_a_flush_had_no_room_for_stays_pending(narrow: Callable[[Any], dv.Session]) -> None:
    """An explicit flush sends off everything; what was built upon it meanwhile is right as well."""
    ps = narrow(4 * BYTES)
    big = ps.ones(100 * LENGTH) * 3.0
    part = big.sum()
    y = ps.array(np.ones(100)) + 1.0
    ps.flush()
    later = y * 2.0
    total = later.sum()
    ps.flush()
    assert float(total) == 400.0
    assert (y.numpy() == 2.0).all()
    assert float(part) == 300.0 * LENGTH, "its sum needs no room for it"
    with pytest.raises(dv.OutOfBudget, match=r"needs .* allowed"):
        big.persist()
    with pytest.raises(dv.OutOfBudget, match=r"needs .* allowed"):
        big.numpy()
    assert (later.numpy() == 4.0).all()


def test_forty_arrays_over_the_budget_are_each_there_or_pending(
    narrow: Callable[[Any], dv.Session],
) -> None:
    ps = narrow(5 * BYTES)
    x = ps.array(np.ones(LENGTH))
    held = {k: x * float(k) for k in range(40)}
    ps.flush()
    refused = []
    for k in list(held):
        try:
            assert (held[k].numpy() == float(k)).all()
        except dv.OutOfBudget:
            refused.append(k)
    assert 30 < len(refused) < 35, "two servers have room for ten vectors and no more"
    for k in set(held) - set(refused):
        del held[k]
    for k in refused:
        assert (held.pop(k).numpy() == float(k)).all()


def test_a_loop_that_never_asks_goes_on_beside_what_does_not_fit(
    ps: dv.Session, narrow: Callable[[Any], dv.Session]
) -> None:
    """The graph stays bounded, and messages few, though something pending fits nowhere."""
    ps = narrow(4 * BYTES)
    ps.pending_depth, ps.pending_nodes = 64, 256
    big = ps.ones(100 * LENGTH) * 3.0
    y = ps.array(np.ones(100))
    for _ in range(2000):
        y = y + 1.0
    assert len(ps.graph) <= 2 * 256
    assert ps.counters.messages <= 100
    assert (y.numpy() == 2001.0).all()
    assert not big.node.known


def test_what_was_computed_from_is_freed_once_the_answer_is_there() -> None:
    with dv.local(servers=2, in_process=True) as ps:
        x = ps.array(np.ones(LENGTH))
        for _ in range(5):
            x = x * 2.0 + 1.0
            ps.flush()
        float(ps.array(np.ones(3)).sum())
        assert ps.client.status()[0].buffers == 1


def test_an_error_keeps_nothing_alive() -> None:
    """Not until a collection of cycles: memory is what was short."""
    gc.disable()
    try:
        with dv.local(servers=2, in_process=True, memory=3 * BYTES) as ps:
            x = ps.array(np.ones(LENGTH))
            y = x * 3.0
            held = [x * float(k) for k in range(2, 9)]
            with pytest.raises(dv.OutOfBudget):
                dv.evaluate(y, *held)
            del x, held
            assert (y.numpy() == 3.0).all()
            assert ps.client.status()[0].buffers == 1
    finally:
        gc.enable()


def test_an_expression_built_upon_a_failed_flush_is_computed_from_the_start(
    narrow: Callable[[Any], dv.Session],
) -> None:
    ps = narrow(3 * BYTES)
    x = ps.array(np.ones(LENGTH))
    y, others = x + 1.0, [x * float(k) for k in range(2, 9)]
    ps.flush()  # has no room for all of them
    z = y * 10.0
    del y
    assert (z.numpy() == 20.0).all()
    assert len(others) == 7


STATEMENTS = (
    "{0} = {1} + {2}",
    "{0} += {1}",
    "{0} = {1} * 0.5",
    "{0} = {1} * 2.0 - {2} * 0.25",
    "{0} = {1}.copy()",
    "{0} = np.abs({1}) + {0}",
    "{0} = {1} - ({1} @ {2}) / (1.0 + {2} @ {2}) * {2}",
    "check({0})",
    "float({0} @ {1})",
    "ps.flush()",
    "check({0}, {1}, {2}, x4, x5, x6, x7, x8)",
)
NAMES = [f"x{k}" for k in range(12)]


def has_values(*arrays: Any) -> None:
    """NumPy's side has nothing to evaluate."""


class _Nothing:
    """NumPy's side has nothing to flush."""

    def flush(self) -> None:
        """Do nothing."""


SMALL = 20_000
OWN = 100_000
"""Bytes that servers count beside those of vectors: sessions, programs, replies on record."""


@given(
    program=st.lists(
        st.tuples(st.sampled_from(STATEMENTS), *[st.sampled_from(NAMES)] * 3),
        min_size=5,
        max_size=30,
    ),
    room=st.integers(7, 10),
)
@settings(max_examples=40)
def test_each_array_is_right_or_out_of_budget(
    program: list[tuple[str, str, str, str]], room: int
) -> None:
    """Under a tight budget; what was refused can be read when others are gone."""
    start = {name: np.linspace(-1.0, 1.0 + k, SMALL) for k, name in enumerate(NAMES)}
    with (
        pytest.MonkeyPatch.context() as patch,
        dv.local(servers=1, in_process=True, memory=room * 8 * SMALL + OWN) as ps,
    ):
        patch.setattr(liveness, "LEAST_BYTES", 0)
        ps.pending_depth = 8

        theirs = {"np": np, "ps": _Nothing(), "check": has_values}
        ours: dict[str, Any] = {"np": np, "ps": ps, "check": dv.evaluate}
        for name in NAMES[:4]:
            theirs[name], ours[name] = start[name].copy(), ps.array(start[name])
        for k, name in enumerate(NAMES[4:], 2):  # lazy
            theirs[name], ours[name] = theirs["x0"] * float(k), ours["x0"] * float(k)
        for line, *names in program:
            statement = line.format(*names)
            try:
                exec(statement, ours)
            except dv.OutOfBudget:
                if not statement.startswith(("check", "float")):
                    raise  # building asks for nothing
            exec(statement, theirs)
        waiting = list(NAMES)
        while waiting:
            before = len(waiting)
            for name in waiting:
                try:
                    found = ours[name].numpy()
                except dv.OutOfBudget:
                    continue
                np.testing.assert_allclose(found, theirs[name], rtol=1e-9, atol=1e-9)
                del ours[name]
            waiting = [name for name in waiting if name in ours]
            assert len(waiting) < before, "none of them can be read, though others are gone"
