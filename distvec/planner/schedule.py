"""Traversals into programs. One program is one message to each server that holds data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distvec.graph.expr import Node
from distvec.planner.fuse import Fused, Traversal


@dataclass
class Stage:
    """Traversals that wait for the same answers, and the scalars that the client then computes."""

    traversals: list[Traversal] = field(default_factory=list)
    scalars: list[Node] = field(default_factory=list)


@dataclass
class Schedule:
    """Stages in order. ``before`` are scalars that need no answer at all."""

    stages: list[Stage]
    before: list[Node]


def schedule(fused: Fused, levels: Mapping[int, int]) -> Schedule:
    """One stage per level of traversals; a scalar goes to the stage after which it is known."""
    by_level: dict[int, Stage] = {}
    for traversal in fused.traversals:
        by_level.setdefault(traversal.level, Stage()).traversals.append(traversal)
    before: list[Node] = []
    for scalar in fused.scalars:
        level = levels[id(scalar)]
        earlier = [known for known in by_level if known < level]
        (by_level[max(earlier)].scalars if earlier else before).append(scalar)
    return Schedule([by_level[level] for level in sorted(by_level)], before)
