"""Docstrings of solvers: overrides have the sections of the base, shared parameters one wording."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict

from optim import LBFGS, Solver
from optim.core.docstrings import inherit_sections
from optim.scipy_interface import exported_solvers

SHARED = (
    "max_iterations max_evaluations max_seconds gradient_rtol step_tolerance history average "
    "projection window"
).split()


def test_an_override_has_the_sections_of_the_base():
    own, base = inspect.getdoc(LBFGS.step), inspect.getdoc(Solver.step)
    assert own.startswith("Take one iteration; if the pairs mislead")
    assert own.partition("Parameters")[2] == base.partition("Parameters")[2] != ""


def test_own_sections_stay():
    class Base:
        def take(self, x):
            """Take x.

            Parameters
            ----------
            x : int
                A number.

            Returns
            -------
            int
                Another.

            Notes
            -----
            Slow.
            """

        @property
        def size(self):
            """The size.

            Returns
            -------
            int
                A number.
            """

    class Derived(Base):
        def take(self, x):
            """Take x fast.

            Notes
            -----
            Fast.
            """

        @property
        def size(self):
            """Twice the size."""

    inherit_sections(Derived)
    assert re.findall(r"(\w+)\n---", Derived.take.__doc__) == ["Parameters", "Returns", "Notes"]
    assert "Fast." in Derived.take.__doc__
    assert "Slow." not in Derived.take.__doc__
    assert Derived.size.__doc__ == "Twice the size.\n\nReturns\n-------\nint\n    A number."
    before = Derived.take.__doc__
    inherit_sections(Derived)
    assert Derived.take.__doc__ == before


def test_shared_parameters_have_one_wording():
    wordings = defaultdict(set)
    for name, solver in exported_solvers().items():
        text = inspect.getdoc(solver)
        for shared in SHARED:
            found = re.search(rf"^{shared} : [^\n]*\n((?:    [^\n]*\n)+)", text, re.MULTILINE)
            assert found or shared not in inspect.signature(solver).parameters, (name, shared)
            if found and shared != "history":  # how many vectors it takes differs
                wordings[shared].add(found[1])
    assert {name: texts for name, texts in wordings.items() if len(texts) > 1} == {}
