"""Malformed messages, a million of them: ``tests/fuzz`` says what they are and what must hold."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fuzz.batches import Finding, Tally, first_seeds, run_batch
from tests.fuzz.bulk import BulkTarget
from tests.fuzz.files import FILES, try_one
from tests.fuzz.live import Live, abuse_all, live, send_messages
from tests.fuzz.messages import attack
from tests.fuzz.target import Target, Watch
from tests.stress.row import Row

MESSAGES = 1_000_000
"""In all."""
OF_FILES = 0.08
"""This part of them is files, the same number of each kind."""
OVER_GRPC = 0.05
"""This one goes to live server processes,"""
OF_BULK = 0.05
"""this one to servers in this process, over the port for bulk data,"""
OF_LINES = 0.01
"""and this one to a service such as the registry of servers on Spark."""
CONNECTIONS = 8
"""Of each abuse of HTTP/2."""
SLOW_SECONDS = 20.0
"""A message that takes longer counts as a failure."""
_MOST_SHOWN = 3


def run(scale: float) -> Iterator[Row]:
    """A row for each kind of message; failures are what nobody expected, with their seeds."""
    began = int(os.environ.get("FUZZ_SEED", "0"))
    rest = 1 - OF_FILES - OVER_GRPC - OF_BULK - OF_LINES
    for what in FILES:
        yield _of_files(what, began, int(MESSAGES * OF_FILES / 4 * scale))
    yield _messages(began, int(MESSAGES * OF_LINES * scale))
    with _own_cache():
        yield from _live(began, int(MESSAGES * OVER_GRPC * scale))
        yield from _in_process(began, int(MESSAGES * OF_BULK * scale), "the bulk port", BulkTarget)
        yield from _in_process(began, int(MESSAGES * rest * scale), "a service", Target)


def _live(seed: int, count: int) -> Iterator[Row]:
    with live() as running:
        token = running.servers.token
        tokens = [token, token, token, None, "wrong"]
        became = send_messages(running, first_seeds(seed, count), tokens)
        told = ", ".join(f"{number} {what}" for what, number in became.most_common())
        yield _of_live("to server processes, over gRPC", became.total(), running, told)
        connections = max(2, int(CONNECTIONS * count / (MESSAGES * OVER_GRPC)))
        sent = abuse_all(running, connections, 1.0)
        told = f"{sum(sent.values()) >> 20} MiB"
        what = f"to server processes, {len(sent)} abuses of HTTP/2"
        yield _of_live(what, connections * len(sent), running, told)


def _of_live(what: str, count: int, running: Live, told: str) -> Row:
    good, wrong = running.good, running.looks()
    failures = len(wrong) + good.late
    detail = (
        f"{told}; the good client asked {good.asked} times, slowest {good.slowest:.2f} s, "
        f"{good.late} above 1 s; grown by {running.grown >> 20} MiB"
    )
    return Row(what, count, failures, "; ".join((*wrong[:_MOST_SHOWN], detail)))


def _messages(seed: int, count: int) -> Row:
    wrong, known = attack(seed, count)
    detail = f"{known} of them by who knew the key"
    return Row("to the registry: messages", count, len(wrong), "; ".join((*wrong[:3], detail)))


def _of_files(what: str, seed: int, count: int) -> Row:
    slowest, wrong = 0.0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ast has some for what looks like Python
        for one in range(seed, seed + count):
            began = time.perf_counter()
            if told := try_one(what, one):
                wrong.append(f"try_one({what!r}, {one}): {told[:200]}")
            slowest = max(slowest, time.perf_counter() - began)
    failures = len(wrong) + (slowest > SLOW_SECONDS)
    detail = "; ".join((*wrong[:_MOST_SHOWN], f"slowest {slowest:.2f} s"))
    return Row(f"read: {what}", count, failures, detail)


def _in_process(seed: int, count: int, to: str, kind_of_target: type[Target]) -> list[Row]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    findings: list[Finding] = []
    with Watch() as watch:
        for one in first_seeds(seed, count):
            findings += run_batch(one, tallies, watch, kind_of_target)
    of_kind = {kind: [one for one in findings if one.kind == kind] for kind in (*tallies, "end")}
    rows = [_row(to, kind, tally, of_kind[kind]) for kind, tally in sorted(tallies.items())]
    left = of_kind["end"]
    ended = len(first_seeds(seed, count))
    return [*rows, Row(f"to {to}: what is left in the end", ended, len(left), _told(left))]


def _row(to: str, kind: str, tally: Tally, findings: list[Finding]) -> Row:
    detail = (
        f"{tally.no_message} no message, {tally.refused} refused, {tally.accepted} accepted, "
        f"slowest {tally.slowest:.2f} s"
    )
    failures = len(findings) + (tally.slowest > SLOW_SECONDS)
    detail = "; ".join(filter(None, (_told(findings), detail)))
    return Row(f"to {to}: {kind}", tally.count, failures, detail)


def _told(findings: list[Finding]) -> str:
    return "; ".join(
        f"python -m tests.fuzz {one.seed} (message {one.number}: {one.what[:200]})"
        for one in findings[:_MOST_SHOWN]
    )


@contextmanager
def _own_cache() -> Iterator[None]:
    """Kernels that nobody needs again are kept nowhere."""
    before = os.environ.get("DISTVEC_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DISTVEC_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["DISTVEC_CACHE"]
            else:
                os.environ["DISTVEC_CACHE"] = before
