"""Loops as textbooks write them, which never read a value, cost no more than with ``float()``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

import distvec as dv
from benchmarks.algorithms import LOOPS, Scalar, lazy
from distvec.session import Session


def problem(ps: Session) -> tuple[Any, Any]:
    """A diagonal matrix and a right side."""
    return ps.array(np.linspace(1, 2, 400)), ps.array(np.cos(np.arange(400.0)))


class Cost(NamedTuple):
    """Of a loop, and its result."""

    messages: int
    reads: int
    calls: int
    again: int
    """Calls of a second run, whose plans are kept."""
    cancellations: int
    result: np.ndarray[Any, Any]


def cost(loop: Callable[..., Any], scalar: Scalar, steps: int) -> Cost:
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "/distvec/" in frame.f_code.co_filename

    with dv.local(2, in_process=True) as ps:
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            x = loop(*problem(ps), steps, scalar).persist()
            counters, first = ps.counters.snapshot(), calls
            loop(*problem(ps), steps, scalar).persist()
        finally:
            sys.setprofile(before)
        messages, reads = counters["messages"], counters["vectors_read"]
        return Cost(messages, reads, first, calls - first, ps.cancellations, x.numpy())


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_lazy_loop_costs_no_more(loop: Callable[..., Any]) -> None:
    typed = {steps: cost(loop, lazy, steps) for steps in (9, 19)}
    for steps, found in typed.items():
        eager = cost(loop, float, steps)
        assert found.messages <= eager.messages + steps
        assert found.reads <= eager.reads + 2 * steps
        assert found.calls <= 3.5 * eager.calls, "of one plan, where plans of the other are kept"
        assert found.again <= 1.5 * eager.again, "scalars are nodes, too"
        assert found.cancellations == 0
        np.testing.assert_allclose(found.result, eager.result, rtol=1e-9)
    assert typed[19].calls <= 2.3 * typed[9].calls, "planning costs more the longer the loop"
