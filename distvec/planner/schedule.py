"""Traversals into programs. One program is one message to each server that holds data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from distvec.graph.expr import Node
from distvec.graph.moves import first_level, movement_key, phases_of
from distvec.planner.fuse import Fused, Traversal


class PhaseOf(NamedTuple):
    """A phase of a movement, of which these nodes are the outputs."""

    outputs: Sequence[Node]
    phase: int


@dataclass
class Stage:
    """Traversals that wait for the same answers, and the scalars that the client then computes."""

    traversals: list[Traversal] = field(default_factory=list)
    before: list[PhaseOf] = field(default_factory=list)
    """Phases of movements that run before the traversals,"""
    after: list[PhaseOf] = field(default_factory=list)
    """and the first ones, which take what these have stored."""
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
    for outputs, first, phases in _movements(fused.movements, levels):
        for phase in range(phases):
            stage = by_level.setdefault(first + phase, Stage())
            is_early = phase > 0 or phases == 1
            (stage.before if is_early else stage.after).append(PhaseOf(outputs, phase))
    before: list[Node] = []
    for scalar in fused.scalars:
        level = levels[id(scalar)]
        earlier = [known for known in by_level if known < level]
        (by_level[max(earlier)].scalars if earlier else before).append(scalar)
    return Schedule([by_level[level] for level in sorted(by_level)], before)


def _movements(
    nodes: Sequence[Node], levels: Mapping[int, int]
) -> Iterator[tuple[list[Node], int, int]]:
    """The outputs of each movement, the level of its first phase, and how many phases it has."""
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in nodes:
        groups.setdefault(movement_key(node), []).append(node)
    for outputs in groups.values():
        node = outputs[0]
        yield outputs, first_level(node, levels[id(node)]), phases_of(node)
