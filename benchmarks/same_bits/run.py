"""Runs programs in the checkout that ``PYTHONPATH`` names, and says the bits of what they compute.

Reads programs as JSON, one a line, and answers with one line each. Imports nothing of the checkout
that it lies in: it is run by its path, so that another checkout need not have it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from contextlib import ExitStack
from typing import Any

import numpy as np

import distvec as dv
import optim
from distvec.testing import engine


def main() -> None:
    """All programs of the standard input, on sessions that stay open meanwhile."""
    warnings.simplefilter("ignore")
    with ExitStack() as stack:
        sessions: dict[int, dv.Session] = {}
        for line in sys.stdin:
            program = json.loads(line)
            servers = program["servers"]
            if servers not in sessions:
                sessions[servers] = stack.enter_context(dv.local(servers=servers))
            with ExitStack() as around:
                if program["engine"]:
                    around.enter_context(engine(program["engine"]))
                print(json.dumps(outcome(sessions[servers], program)), flush=True)


def outcome(ps: dv.Session, program: dict[str, Any]) -> dict[str, str]:
    """By name, what the program leaves; or the error that it ends with."""
    names = {"np": np, "dv": dv, "optim": optim, "ps": ps}
    rng = np.random.default_rng(program["seed"])
    for name, dtype in program["inputs"].items():
        names[name] = ps.array(values(rng, program["length"], dtype, program["special"]))
    try:
        exec(program["source"], names)
        return {name: digest(names[name]) for name in program["results"]}
    except Exception as error:  # noqa: BLE001 - whatever it is, the other must raise it too
        return {"error": f"{type(error).__name__}: {error}"}


def values(rng: np.random.Generator, length: int, dtype: str, special: bool) -> Any:
    """A vector of small values; with some of the floats ``special`` ones, if so wanted."""
    if dtype == "bool":
        return rng.random(length) < 0.5
    if dtype.startswith("int"):
        return rng.integers(-9, 10, length).astype(dtype)
    found = rng.uniform(-2.0, 2.0, length)
    if special:
        some = rng.random(length) < 0.1
        found[some] = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e300], some.sum())
    return found.astype(dtype)


def digest(result: Any) -> str:
    """Dtype, shape and a hash of all bits: of a vector, of a number, of a result of a solver.

    But for the sign of a NaN, which follows from the order of operands in the machine code.
    """
    if isinstance(result, dv.DistArray):
        result = result.numpy() if result.ndim else result.item()
    found = np.array(result)
    if found.dtype.kind == "f":
        found[np.isnan(found)] = np.nan
    bits = hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()[:16]
    return f"{found.dtype}{list(found.shape)} {bits}"


if __name__ == "__main__":
    main()
