"""Signals wait for the request under way; the third Ctrl-C does not."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ps_backend.client.signals import (
    cancel_on_ctrl_c,
    defer_signals,
    hold_lock,
    hold_lock_if_handled,
)


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
        with defer_signals():
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
        with defer_signals():
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
        with defer_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=request)
    thread.start()
    thread.join()
    assert seen == [before]


def test_inside_of_another_block_the_outermost_one_decides() -> None:
    reached = []

    def request() -> None:
        with defer_signals():
            with defer_signals():
                interrupt()
            reached.append("the end of the inner block")

    with pytest.raises(KeyboardInterrupt):
        request()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_long_block_may_let_it_pass_in_between() -> None:
    reached = []

    def requests() -> None:
        with defer_signals() as hold:
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
        with defer_signals():
            interrupt()
            with cancel_on_ctrl_c(lambda: told.append("outer")):  # held already
                with cancel_on_ctrl_c(lambda: told.append("inner")):
                    pass
                interrupt()

    with pytest.raises(KeyboardInterrupt):
        request()
    assert told == ["outer", "inner", "outer"]


# --- handlers of other signals --------------------------------------------------------------------


@pytest.fixture
def handle() -> Iterator[Callable[[signal.Signals, Callable[[], object]], None]]:
    """Sets the handler of a signal."""
    before: list[tuple[signal.Signals, Any]] = []

    def to_be(number: signal.Signals, handler: Callable[[], object]) -> None:
        before.append((number, signal.signal(number, lambda *_: handler())))

    yield to_be
    for number, handler in reversed(before):
        signal.signal(number, handler)


def send(*numbers: signal.Signals) -> None:
    for number in numbers:
        signal.raise_signal(number)


def test_handlers_wait_for_the_end_and_run_once_each(handle: Any) -> None:
    said: list[str] = []
    handle(signal.SIGTERM, lambda: said.append("term"))
    handle(signal.SIGALRM, lambda: said.append("alarm"))
    with defer_signals():
        with defer_signals():
            send(signal.SIGALRM, signal.SIGTERM, signal.SIGALRM, signal.SIGALRM)
        said.append("the end of the request")
    assert said == ["the end of the request", "alarm", "term"]
    send(signal.SIGTERM)
    assert said[3:] == ["term"]


def test_a_handler_may_ask_and_is_not_interrupted_then(handle: Any) -> None:
    said: list[str] = []

    def ask() -> None:
        with defer_signals():
            send(signal.SIGUSR1)
            said.append("the request of the handler")

    handle(signal.SIGTERM, ask)
    handle(signal.SIGUSR1, lambda: said.append("another handler"))
    with defer_signals():
        send(signal.SIGTERM)
    assert said == ["the request of the handler", "another handler"]


def test_what_a_handler_raises_is_raised_and_the_others_run_all_the_same(handle: Any) -> None:
    said: list[str] = []

    def too_late() -> None:
        raise TimeoutError("too late")

    handle(signal.SIGALRM, too_late)
    handle(signal.SIGTERM, lambda: said.append("term"))
    with pytest.raises(TimeoutError, match="too late"), defer_signals():
        send(signal.SIGALRM, signal.SIGTERM)
    assert said == ["term"]
    with defer_signals():
        pass


def test_a_handler_of_ctrl_c_that_returns_does_not_run_in_the_middle(handle: Any) -> None:
    """What it does with the session would be news to the rest of the block."""
    said: list[str] = []
    handle(signal.SIGINT, lambda: said.append("ctrl-c"))
    with defer_signals() as hold:
        interrupt()
        hold.check()
        said.append("the end")
    assert said == ["the end", "ctrl-c"]


def test_a_profiler_is_not_held_up(handle: Any) -> None:
    said: list[str] = []
    handle(signal.SIGPROF, lambda: said.append("sample"))
    with defer_signals():
        send(signal.SIGPROF)
        assert said == ["sample"]


def test_with_a_lock_handlers_wait_but_not_while_another_thread_has_it(handle: Any) -> None:
    lock, has_it, may_end = threading.RLock(), threading.Event(), threading.Event()
    said: list[str] = []

    def hold() -> None:
        with lock:
            has_it.set()
            may_end.wait(20)

    def end() -> None:
        said.append("a handler")
        may_end.set()

    other = threading.Thread(target=hold)
    handle(signal.SIGTERM, end)
    other.start()
    assert has_it.wait(20)
    with defer_signals():
        pass
    threading.Timer(0.0, os.kill, [os.getpid(), signal.SIGTERM]).start()
    with hold_lock(lock):  # the other thread waits for the handler
        said.append("the lock")
        send(signal.SIGTERM)
        said.append("the end")
    other.join()
    assert said == ["a handler", "the lock", "the end", "a handler"]
    assert lock.acquire(blocking=False)


def test_a_lock_takes_no_more_than_before_without_handlers(handle: Any) -> None:
    lock = threading.RLock()
    assert hold_lock_if_handled(lock) is lock
    handle(signal.SIGTERM, lambda: None)
    assert isinstance(hold_lock_if_handled(lock), hold_lock)
