"""Work that is shared out: everybody has ended when the call does."""

from __future__ import annotations

import threading

import pytest

from ps_backend.kernels.kernel import in_parts, together
from tests.waiting import PATIENCE


def test_results_come_in_order_and_this_thread_computes_the_first() -> None:
    found = together(lambda a, b: (a + b, threading.get_ident()), (1, 2, 3), (10, 20, 30))
    assert [total for total, _ in found] == [11, 22, 33]
    assert found[0][1] == threading.get_ident()


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_waits_for_the_others(failing: int) -> None:
    failed, ended = threading.Event(), threading.Event()

    def run(number: int) -> None:
        if number == failing:
            failed.set()
            raise ValueError(f"number {number}")
        assert failed.wait(PATIENCE)
        ended.set()

    with pytest.raises(ValueError, match=f"number {failing}"):
        together(run, (0, 1))
    assert ended.is_set()


def test_parts_are_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    for count, work, threads in ((0, 1, 1), (10, 1, 1), (10, 1 << 30, 3), (2, 1 << 30, 3)):
        found: list[tuple[int, int]] = []
        in_parts(lambda low, high: found.append((low, high)), count, work)  # noqa: B023
        assert len(found) <= threads
        assert [k for part in sorted(found) for k in range(*part)] == list(range(count))
