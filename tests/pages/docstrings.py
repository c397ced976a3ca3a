"""The examples in docstrings: those of a name run in order, and print what they show."""

from __future__ import annotations

import doctest
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

import distvec as dv
import optim
from docs.public import documented

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _code(name: str, thing: object) -> str:
    """The lines of the examples, without their output."""
    found = doctest.DocTestParser().get_examples(getattr(thing, "__doc__", None) or "", name)
    return "".join(example.source for example in found)


EXAMPLES = {name: thing for name, thing in documented().items() if _code(name, thing)}
NEEDS_SPARK = [
    name
    for name, thing in EXAMPLES.items()
    if re.search(r"\b(distvec\.)?spark\b", _code(name, thing))
]


def run(name: str, more: Mapping[str, Any]) -> None:
    """Run the examples with ``np``, ``dv``, ``optim`` and ``more``."""
    names: dict[str, Any] = {"np": np, "dv": dv, "optim": optim, **more}
    text = EXAMPLES[name].__doc__ or ""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    try:
        doctest.DebugRunner(optionflags=FLAGS).run(test)
    except doctest.DocTestFailure as failure:
        raise AssertionError(
            f"{name}: {failure.example.source}expected:\n{failure.example.want}got:\n{failure.got}"
        ) from None
