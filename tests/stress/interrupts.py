"""Ctrl-C at any moment of a change: afterwards the array has its old or its new value."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

import distvec as dv
from tests.stress.row import Row

LENGTH = 3_000_000
TRIALS = 250
SEED = 5

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
    from distvec.spark.rounds.contribute import Report

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


def run(scale: float) -> list[Row]:
    """A thousand interrupts at scale 1; and half as many that come in twos."""
    rows = []
    for times, what in ((1, "Ctrl-C"), (2, "Ctrl-C twice")):
        trials = max(1, round(TRIALS * scale / times))
        for name, change in CHANGES.items():
            wrong = broken(change, trials, times=times)
            rows.append(Row(f"{what} in {name}", trials, len(wrong), "; ".join(wrong[:1])))
    return rows
