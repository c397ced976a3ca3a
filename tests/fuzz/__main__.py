"""``python -m tests.fuzz SEED ...``: send the messages of these seeds again, and say what fails."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict

from tests.fuzz.batches import Tally, run_batch
from tests.fuzz.target import Watch


def main() -> int:
    """Print what goes wrong; 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int)
    options = parser.parse_args()
    tallies: dict[str, Tally] = defaultdict(Tally)
    failed = 0
    with Watch() as watch:
        for seed in options.seeds:
            for finding in run_batch(seed, tallies, watch):
                failed += 1
                print(f"seed {seed}, message {finding.number}, {finding.kind}: {finding.what}")
                print(finding.request)
    for kind, tally in tallies.items():
        print(
            f"{kind:<8} {tally.count:>7} sent, {tally.no_message:>6} no message, "
            f"{tally.refused:>7} refused, {tally.accepted:>7} accepted, slowest "
            f"{tally.slowest:.3f} s, {dict(tally.errors)}"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
