"""Signals at any moment of a change.

After Ctrl-C the array has its old or its new value. Handlers of other signals use the session as if
they had been called before the change, or after it.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import distvec as dv
from tests.stress.row import Row

LENGTH = 3_000_000
TRIALS = 250
SEED = 5

DEEPEST = 4
"""Handlers that may run within each other: more signals wait, or a slow machine would never come
back from them before Python's recursion limit."""

Change = Callable[[dv.DistArray, dv.DistArray], dv.DistArray]
"""Adds the second array, of ones, to the first one in some way; returns what has the sum."""


def in_place(x: dv.DistArray, ones: dv.DistArray) -> dv.DistArray:
    x += ones
    return x.persist()


def evaluation(x: dv.DistArray, ones: dv.DistArray) -> dv.DistArray:
    """Two programs, the second of which depends on what the first one brings."""
    x += ones * (ones @ ones) / float(len(ones))
    dv.evaluate(x, x @ x)
    return x


def push(x: dv.DistArray, ones: dv.DistArray) -> dv.DistArray:
    return x.push(np.arange(len(x)), 1.0)


def commit(x: dv.DistArray, ones: dv.DistArray) -> dv.DistArray:
    """The end of a round, whose task is this thread."""
    from distvec.spark.rounds import round as rounds
    from distvec.spark.task_session import Report

    ps, partition = x.session, 0
    name = f"round {ps.client.new_id()}"
    ps.client.stage(name, partition, 1, x.space, None, np.ones(len(x)))
    report = Report(closure=0, stage=0, partition=partition, attempt=1, run=1, counts=[1])
    rounds.commit(ps, rounds.Slots.of([x])[0], "add", name, [report])
    return x


CHANGES: dict[str, Change] = {
    "x += y; x.persist()": in_place,
    "an evaluation of two programs": evaluation,
    "x.push": push,
    "a round's commit": commit,
}


@contextmanager
def python_handles_interrupts() -> Iterator[None]:
    """Also where the tests run in the background, with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(action: Callable[[], object], delay: float, times: int = 1) -> int:
    """Run ``action``, with SIGINT to this process after ``delay`` s; how many came through."""
    caught = 0
    over = threading.Event()

    def send() -> None:
        threading.Event().wait(delay)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(1e-3)
        over.set()

    thread = threading.Thread(target=send)
    try:
        thread.start()
        action()
    except KeyboardInterrupt:
        caught += 1
    while True:
        try:
            over.wait()
            thread.join()
            return caught
        except KeyboardInterrupt:
            caught += 1


def broken(change: Change, trials: int, *, length: int = LENGTH, times: int = 1) -> list[str]:
    """What went wrong in so many trials; ``times``: how often Ctrl-C is pressed."""
    rng, wrong = random.Random(SEED), []
    with dv.local(servers=2) as ps, python_handles_interrupts():
        x, ones = ps.zeros(length).persist(), ps.ones(length).persist()
        change(x, ones)
        began = time.perf_counter()
        change(x, ones)
        usual = time.perf_counter() - began
        before = 2.0
        for _ in range(trials):
            action = partial(change, x, ones)
            caught = interrupted(action, rng.uniform(0.0, 1.3 * usual), times)
            if not caught:
                wrong.append("no interrupt came through")
            try:
                values = x.numpy()
            except dv.PSError as error:
                wrong.append(f"{type(error).__name__}: {error}")
                x, before = ps.zeros(length).persist(), 0.0
                continue
            if values[0] not in (before, before + 1.0) or (values != values[0]).any():
                wrong.append(f"{values[:3]} after {before}")
                x, before = ps.zeros(length).persist(), 0.0
                continue
            before = values[0]
    return wrong


@contextmanager
def handled(handlers: dict[signal.Signals, Callable[..., Any]]) -> Iterator[None]:
    """Signals are handled so in the block."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def checkpointed(change: Change, trials: int, *, length: int = LENGTH) -> list[str]:
    """What went wrong where SIGTERM's handler makes a checkpoint, at any moment of a change."""
    rng, wrong, kept = random.Random(SEED), list[str](), threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        dv.local(servers=2) as ps,
        python_handles_interrupts(),
    ):
        x, ones = ps.zeros(length).persist(), ps.ones(length).persist()
        change(x, ones)
        began = time.perf_counter()
        change(x, ones)
        usual, changes = time.perf_counter() - began, 2

        def on_term(*_: object) -> None:
            try:
                ps.checkpoint(folder, x=x)
                values = ps.restore(folder)["x"].numpy()
                if values[0] not in (changes, changes + 1) or (values != values[0]).any():
                    wrong.append(f"{values[:3]} were kept after {changes} changes")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                wrong.append(f"the handler: {type(error).__name__}: {error}")
            kept.set()

        with handled({signal.SIGTERM: on_term}):
            for _ in range(trials):
                kept.clear()
                delay = rng.uniform(0.0, 1.3 * usual)
                timer = threading.Timer(delay, os.kill, [os.getpid(), signal.SIGTERM])
                timer.start()
                try:
                    while not kept.is_set():
                        change(x, ones)
                        changes += 1
                except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                    wrong.append(f"{type(error).__name__}: {error}")
                timer.join()
        values = x.numpy()
        if (values != changes).any():
            wrong.append(f"{values[:3]} after {changes} changes")
    return wrong


def nested(changes: int, *, length: int = LENGTH // 30) -> list[str]:
    """What went wrong where handlers push, and interrupt each other and what they push to."""
    rng, wrong, made, depth = random.Random(SEED), list[str](), [0], [0]
    with dv.local(servers=2) as ps, python_handles_interrupts():
        x, everywhere, over = ps.zeros(length).persist(), np.arange(length), threading.Event()

        def push(*_: object) -> None:
            depth[0] += 1
            for _ in range(2):
                x.push(everywhere, 1.0)
                made[0] += 1
            depth[0] -= 1

        def send() -> None:
            while not over.wait(rng.uniform(0.0, 0.02)):
                if depth[0] < DEEPEST:
                    os.kill(os.getpid(), rng.choice([signal.SIGALRM, signal.SIGUSR1]))

        thread = threading.Thread(target=send)
        with handled({signal.SIGALRM: push, signal.SIGUSR1: push}):
            try:
                thread.start()
                for _ in range(changes):
                    x += 1.0
                    push()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                wrong.append(f"{type(error).__name__}: {error}")
            finally:
                over.set()
                thread.join()
            values = x.numpy()
        if (values != made[0] + changes).any():
            wrong.append(f"{values[:3]} after {made[0] + changes} changes")
    return wrong


def run(scale: float) -> list[Row]:
    """A thousand Ctrl-C at scale 1, and half as many that come in twos; handlers that checkpoint
    at as many moments, and that push at a thousand."""
    rows = []
    for times, what in ((1, "Ctrl-C"), (2, "Ctrl-C twice")):
        trials = max(1, round(TRIALS * scale / times))
        for name, change in CHANGES.items():
            wrong = broken(change, trials, times=times)
            rows.append(Row(f"{what} in {name}", trials, len(wrong), "; ".join(wrong[:1])))
    trials = max(1, round(TRIALS * scale))
    for name, change in CHANGES.items():
        wrong = checkpointed(change, trials)
        rows.append(Row(f"a checkpoint at SIGTERM in {name}", trials, len(wrong), "; ".join(wrong)))
    wrong = nested(4 * trials)
    rows.append(Row("pushes by handlers, nested", 4 * trials, len(wrong), "; ".join(wrong)))
    return rows
