"""Malformed messages, a million of them: ``tests/fuzz`` says what they are and what must hold."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fuzz.batches import Finding, Tally, first_seeds, run_batch
from tests.fuzz.target import Watch
from tests.stress.row import Row

MESSAGES = 1_000_000
"""In all, by far the most of them to servers in this process."""
SLOW_SECONDS = 20.0
"""A message that takes longer counts as a failure."""
_MOST_SHOWN = 3


def run(scale: float) -> list[Row]:
    """A row for each kind of message; failures are what nobody expected, with their seeds."""
    began = int(os.environ.get("FUZZ_SEED", "0"))
    with _own_cache():
        return _in_process(began, int(MESSAGES * scale))


def _in_process(seed: int, count: int) -> list[Row]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    findings: list[Finding] = []
    with Watch() as watch:
        for one in first_seeds(seed, count):
            findings += run_batch(one, tallies, watch)
    of_kind = {kind: [one for one in findings if one.kind == kind] for kind in (*tallies, "end")}
    rows = [_row(kind, tally, of_kind[kind]) for kind, tally in sorted(tallies.items())]
    left = of_kind["end"]
    ended = len(first_seeds(seed, count))
    return [*rows, Row("to a service: what is left in the end", ended, len(left), _told(left))]


def _row(kind: str, tally: Tally, findings: list[Finding]) -> Row:
    detail = (
        f"{tally.no_message} no message, {tally.refused} refused, {tally.accepted} accepted, "
        f"slowest {tally.slowest:.2f} s"
    )
    failures = len(findings) + (tally.slowest > SLOW_SECONDS)
    detail = "; ".join(filter(None, (_told(findings), detail)))
    return Row(f"to a service: {kind}", tally.count, failures, detail)


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
