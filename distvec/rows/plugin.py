"""Functions of rows that the servers' operator has loaded, by name."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"\w+(\.\w+)+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Plugin:
    """What ``KeyedSpace.apply`` asks servers for; they say what it takes and gives."""

    name: str


def plugin(name: str) -> Plugin:
    """The function ``"package.module.function"`` of a module that servers were started with.

        clip = dv.rows.plugin("package.module.clip")
        norms = space.apply(clip, keys, t, 1.0)

    Its arguments are those of the function there. Where it is not loaded ``apply`` raises
    ``PSError`` that says what the operator has to type. ``ValueError`` for what is no such name.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"a plug-in is called 'package.module.function', got {name!r}")
    return Plugin(name)
