"""Docstrings of methods that subclasses override: their parameters are documented once."""

from __future__ import annotations

import inspect
import itertools
import re

_HEAD = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_INHERITED = ("Parameters", "Returns", "Yields", "Raises")


def inherit_sections(cls: type) -> None:
    """Give each overriding method of ``cls`` the base's Parameters, Returns and Raises.

    The docstring of the override says only how it differs. One that has sections of its own for
    parameters or for the returned value is left as it is.
    """
    for name, own in vars(cls).items():
        function = getattr(own, "fget", own)
        if not inspect.isfunction(function) or not function.__doc__:
            continue
        paragraphs, sections = _split(function.__doc__)
        if not sections.keys().isdisjoint(_INHERITED):
            continue
        inherited = _inherited_sections(name, cls)
        if inherited:
            function.__doc__ = "\n\n".join([paragraphs, *inherited.values(), *sections.values()])
            if isinstance(own, property):
                own.__doc__ = function.__doc__


def _inherited_sections(name: str, cls: type) -> dict[str, str]:
    """The sections of the nearest base class that documents ``name``, in their order."""
    for base in cls.__mro__[1:]:
        own = vars(base).get(name)
        doc = getattr(own, "__doc__", None)
        found = _split(doc)[1] if isinstance(doc, str) else {}
        wanted = {head: text for head, text in found.items() if head in _INHERITED}
        if wanted:
            return wanted
    return {}


def _split(docstring: str) -> tuple[str, dict[str, str]]:
    """The paragraphs before the first section, and the sections with their heads, by name."""
    text = inspect.cleandoc(docstring)
    bounds = [(head[1], head.start()) for head in _HEAD.finditer(text)] + [("", len(text))]
    sections = {
        name: text[start:end].strip() for (name, start), (_, end) in itertools.pairwise(bounds)
    }
    return text[: bounds[0][1]].strip(), sections
