"""Values that come to the client though nobody typed ``.numpy()`` or ``.pull()``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv

IMPLICIT: list[Callable[[Any], Any]] = [
    np.asarray, np.array, lambda x: np.stack([np.asarray(x)]), repr, str, "{}".format, list, sum,
]  # fmt: skip
EXPLICIT: list[Callable[[Any], Any]] = [
    lambda x: x.numpy(), lambda x: x.pull(), lambda x: x.pull([1]), lambda x: x[...].numpy(),
    lambda x: x.tolist(), lambda x: list(x.blocks(300)),
]  # fmt: skip


@pytest.fixture
def x(ps: dv.Session) -> dv.DistArray:
    return ps.array(np.arange(1000.0))


@pytest.mark.parametrize("use", IMPLICIT)
def test_implicit_transfers_are_counted(ps: dv.Session, x: Any, use: Callable[[Any], Any]) -> None:
    use(x)
    use(x)
    assert ps.implicit_transfers == 2
    assert ps.implicit_evaluations == 0, "its value was there"


@pytest.mark.parametrize("use", IMPLICIT)
def test_strict_names_the_line_and_what_to_type(
    ps: dv.Session, x: Any, use: Callable[[Any], Any]
) -> None:
    messages = ps.counters.messages
    for array in (x, x * 2.0):
        with ps.strict(), pytest.raises(RuntimeError) as failed:
            use(array)
        text = str(failed.value)
        assert "test_transfers.py:" in text
        assert "write x.numpy() or x.pull(indices)" in text
    assert ps.counters.messages == messages
    assert ps.implicit_transfers == ps.implicit_evaluations == 0


def test_strict_says_how_much_would_have_come(ps: dv.Session, x: dv.DistArray) -> None:
    with ps.strict(), pytest.raises(RuntimeError, match=r"np.asarray\(\).*1000 elements \(8000 b"):
        np.asarray(x)


@pytest.mark.parametrize("use", EXPLICIT)
def test_explicit_transfers_are_free(ps: dv.Session, x: Any, use: Callable[[Any], Any]) -> None:
    with ps.strict():
        use(x)
    assert ps.implicit_transfers == 0


def test_known_scalars_are_on_the_client_already(ps: dv.Session, x: dv.DistArray) -> None:
    total = (x @ x).persist()
    with ps.strict():
        assert float(total) == np.asarray(total) == float(f"{total}")
        assert math.sqrt(total) > 0
        assert "rank" not in repr(total)
    assert ps.implicit_transfers == 0


def test_an_element_is_lazy_and_comes_alone(ps: dv.Session) -> None:
    x = ps.array(np.arange(10_001.0))
    ps.counters.reset()
    one = x[3]
    assert ps.counters.messages == 0
    assert float(one) == 3.0
    assert ps.counters.bytes_received < 1000
    assert ps.implicit_transfers == 0


@pytest.mark.parametrize("use", [list, sorted, sum, max, memoryview, float])
def test_the_rest_is_refused(ps: dv.Session, use: Callable[[Any], Any]) -> None:
    x = ps.array(np.arange(10_001.0))
    messages = ps.counters.messages
    with pytest.raises(TypeError):
        use(x)
    assert ps.counters.messages == messages
