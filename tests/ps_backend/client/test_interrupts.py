"""Ctrl-C waits for the request under way; the third one does not."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ps_backend.client.interrupts import ended_by_ctrl_c, uninterrupted


@pytest.fixture(autouse=True)
def _python_handles_interrupts() -> Iterator[None]:
    """Also where the tests run in the background, with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("presses", [1, 2])
def test_the_first_and_the_second_are_held_back_until_the_end(presses: int) -> None:
    reached = []

    def request() -> None:
        with uninterrupted():
            for _ in range(presses):
                interrupt()
            reached.append("the end of the request")

    with pytest.raises(KeyboardInterrupt):
        request()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_third_passes_at_once() -> None:
    reached = []

    def request() -> None:
        with uninterrupted():
            interrupt()
            interrupt()
            interrupt()
            reached.append("too far")

    with pytest.raises(KeyboardInterrupt):
        request()
    assert not reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_pass_through() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def request() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=request)
    thread.start()
    thread.join()
    assert seen == [before]


def test_inside_of_another_block_the_outermost_one_decides() -> None:
    reached = []

    def request() -> None:
        with uninterrupted():
            with uninterrupted():
                interrupt()
            reached.append("the end of the inner block")

    with pytest.raises(KeyboardInterrupt):
        request()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_long_block_may_let_it_pass_in_between() -> None:
    reached = []

    def requests() -> None:
        with uninterrupted() as hold:
            hold.check()
            interrupt()
            reached.append("the first")
            hold.check()
            reached.append("the second")

    with pytest.raises(KeyboardInterrupt):
        requests()
    assert reached == ["the first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_takes_long_is_told_to_end_by_each_press() -> None:
    told: list[str] = []

    def request() -> None:
        with uninterrupted():
            interrupt()
            with ended_by_ctrl_c(lambda: told.append("outer")):  # held already
                with ended_by_ctrl_c(lambda: told.append("inner")):
                    pass
                interrupt()

    with pytest.raises(KeyboardInterrupt):
        request()
    assert told == ["outer", "inner", "outer"]
