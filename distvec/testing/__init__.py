"""To test what is written for distributed arrays: strategies, a differential check, costs.

* ``same_on_all_backends(function, *arrays)``: NumPy and servers give the same.
* ``assert_plan(x @ y, messages=1, sweeps=1)``: cost as an assertion.
* ``vectors``, ``lengths``, ``server_counts``, ``expressions``, ``programs``, ...: Hypothesis
  strategies.
* ``PROBLEMS``: functions with known minima, for optimizers.

Needs Hypothesis: ``pip install distvec[test]``.
"""

try:
    import hypothesis as _hypothesis  # noqa: F401
except ImportError as error:
    raise ImportError(
        "distvec.testing needs Hypothesis, which is not installed; pip install distvec[test]"
    ) from error

from distvec.testing.backends import engine, same_on_all_backends
from distvec.testing.bounded import Bounded
from distvec.testing.compare import assert_close, assert_plan, assert_within, outcome
from distvec.testing.error_bounds import Undecidable
from distvec.testing.fault_injection import FAULTS, faults, lossy_session
from distvec.testing.instructions import (
    Machine,
    Program,
    Refused,
    assert_same_reads,
    bounded_machine,
    server_machine,
)
from distvec.testing.problems import PROBLEMS, TestProblem, problem
from distvec.testing.random_programs import programs
from distvec.testing.strategies import (
    ELEMENTWISE,
    REDUCTIONS,
    Expression,
    Operation,
    dtypes,
    expressions,
    lengths,
    scalars,
    server_counts,
    spaces,
    vector,
    vectors,
)

__all__ = [
    "ELEMENTWISE",
    "FAULTS",
    "PROBLEMS",
    "REDUCTIONS",
    "Bounded",
    "Expression",
    "Machine",
    "Operation",
    "Program",
    "Refused",
    "TestProblem",
    "Undecidable",
    "assert_close",
    "assert_plan",
    "assert_same_reads",
    "assert_within",
    "bounded_machine",
    "dtypes",
    "engine",
    "expressions",
    "faults",
    "lengths",
    "lossy_session",
    "outcome",
    "problem",
    "programs",
    "same_on_all_backends",
    "scalars",
    "server_counts",
    "server_machine",
    "spaces",
    "vector",
    "vectors",
]
