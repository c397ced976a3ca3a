"""What users import keeps its place, whatever room the code moves to."""

from __future__ import annotations

import subprocess
import sys

import pytest

STATEMENTS = (
    "import distvec as dv; dv.local, dv.connect, dv.DistArray, dv.Session, dv.exp, dv.where",
    "from distvec.array import DistArray",
    "from distvec.session import Session",
    "from distvec.testing import programs, same_on_all_backends",
    "from optim import LBFGS, OWLQN, SGD, Outcome, minimize",
    "from ps_backend.client import Client",
    "from ps_backend.errors import PSError, ServerLost",
    "import distvec.warm",
    "from distvec.spark import LogisticLoss, PSContext, run",
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_it_can_be_imported_first(statement: str) -> None:
    if "distvec.spark" in statement:
        pytest.importorskip("pyspark")
    subprocess.run([sys.executable, "-W", "error", "-c", statement], check=True)
