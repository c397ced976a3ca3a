"""Standard test problems of smooth unconstrained optimisation, with starts and known minima.

``problems()`` gives all of them by name. Formulas are ours; each row of the tables names the source
of its problem. Nothing is read from files.
"""

from __future__ import annotations

from benchmarks.test_problems.classics import classics
from benchmarks.test_problems.more_garbow_hillstrom import more_garbow_hillstrom
from benchmarks.test_problems.problem import Objective as Objective
from benchmarks.test_problems.problem import Problem as Problem
from benchmarks.test_problems.scalable import scalable


def problems() -> dict[str, Problem]:
    """All problems by name."""
    rows = (*more_garbow_hillstrom(), *scalable(), *classics())
    return {problem.name: problem for problem in rows}
