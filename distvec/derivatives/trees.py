"""Arguments of several arrays: tuples, lists and dicts, nested as one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def leaves(tree: Any) -> Iterator[Any]:
    """The arrays of ``tree``, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, tuple | list):
        for one in tree:
            yield from leaves(one)
    else:
        yield tree


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """``tree`` with what ``function`` makes of each array, called in the order of ``leaves``."""
    if isinstance(tree, dict):
        return {name: mapped(function, one) for name, one in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(function, one) for one in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(mapped(function, one) for one in tree)
    return function(tree)
