"""``python -m tests.stress [NAME ...]``: run the schedules, print a table, fail if a row does."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.stress.row import Row

_ROOM = Path(__file__).parent
_NOT_SCHEDULES = {"__main__", "row"}


def schedules() -> dict[str, Callable[..., Iterable[Row]]]:
    """Every module of this folder that has a ``run(scale)``, by name."""
    names = sorted({module.name for module in pkgutil.iter_modules([str(_ROOM)])} - _NOT_SCHEDULES)
    modules = {name: importlib.import_module(f"tests.stress.{name}") for name in names}
    return {name: module.run for name, module in modules.items() if hasattr(module, "run")}


def _seeds_of(run: Callable[..., list[Row]], options: argparse.Namespace) -> dict[str, int]:
    """What was said of seeds, for a schedule that is drawn from some."""
    said = {"seeds": options.seeds, "seed": options.seed}
    takes = inspect.signature(run).parameters
    return {name: value for name, value in said.items() if value is not None and name in takes}


def main() -> int:
    """Print the table as it grows; 1 if anything failed."""
    known = schedules()
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(known)}; all without")
    parser.add_argument("--scale", type=float, default=1.0, help="of the repetitions; 0.01: a try")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--seeds", type=int, help="how many, of schedules drawn from seeds")
    parser.add_argument("--seed", type=int, help="only this one, as a failure names it")
    options = parser.parse_args()
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"no schedule {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    rows: list[Row] = []
    print(f"{'what':<60} {'trials':>9} {'failures':>9} {'seconds':>8}  detail", flush=True)
    for name in options.names or known:
        began = time.perf_counter()
        for row in known[name](options.scale, **_seeds_of(known[name], options)):
            seconds = time.perf_counter() - began
            print(f"{row.what:<60} {row.trials:>9} {row.failures:>9} {seconds:>8.1f}  {row.detail}")
            sys.stdout.flush()
            rows.append(row)
    if options.json:
        Path(options.json).write_text(json.dumps([row._asdict() for row in rows], indent=2))
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
