"""``python -m tests.fuzz SEED ...``: send the messages of these seeds again, and say what fails."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict

from tests.fuzz.batches import Tally, run_batch
from tests.fuzz.bulk import BulkTarget
from tests.fuzz.target import Target, Watch


def main() -> int:
    """Print what goes wrong; 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--bulk", action="store_true", help="over the port for bulk data")
    options = parser.parse_args()
    tallies: dict[str, Tally] = defaultdict(Tally)
    failed, kind = 0, BulkTarget if options.bulk else Target
    with Watch() as watch:
        for seed in options.seeds:
            for finding in run_batch(seed, tallies, watch, kind):
                failed += 1
                print(f"seed {seed}, message {finding.number}, {finding.kind}: {finding.what}")
                print(finding.request)
    for name, tally in tallies.items():
        print(
            f"{name:<8} {tally.count:>7} sent, {tally.no_message:>6} no message, "
            f"{tally.refused:>7} refused, {tally.accepted:>7} accepted, slowest "
            f"{tally.slowest:.3f} s, {dict(tally.errors)}"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
