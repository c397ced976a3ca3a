"""Which labels a loss takes, and what they become."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, SupportsFloat, TypeAlias

import numpy as np
import numpy.typing as npt

from distvec.losses.rows import Floats

Mask: TypeAlias = npt.NDArray[np.bool_]

_MOST_CLASSES = 100_000
_PAIRS = (
    "allowed are {0, 1} or {-1, 1}; for other pairs pass positive_label=...; for more than two "
    "classes use the loss Softmax()"
)


class LabelRule(ABC):
    """A kind of labels; a small value that travels to tasks."""

    gathers: ClassVar[bool] = False
    """Whether the distinct labels of all rows are wanted; there must be few then."""

    def first_bad(self, labels: Floats) -> tuple[int, str] | None:
        """The first of finite ``labels`` that cannot be used, and why."""
        bad = np.flatnonzero(~self._usable(labels))
        if not bad.size:
            return None
        row = int(bad[0])
        return row, f"the label is {labels[row]:g}; {self.help}"

    def unusable(self, label: float, seen: Iterable[float]) -> str | None:
        """Why ``label`` cannot join the distinct labels ``seen`` before it (None: it can)."""
        return None

    def check_all(self, partitions: Mapping[int, Iterable[float]]) -> list[float]:
        """All distinct labels, sorted; ValueError unless those of all partitions go together."""
        known: set[float] = set()
        for partition, labels in partitions.items():
            for label in labels:
                if (reason := self.unusable(label, known)) is not None:
                    raise ValueError(f"partition {partition}: {reason}")
                known.add(label)
        return sorted(known)

    def encode(self, labels: Floats) -> Floats:
        """What a loss sees of them."""
        return labels

    @property
    @abstractmethod
    def help(self) -> str:
        """What is allowed."""

    def _usable(self, labels: Floats) -> Mask:
        return np.ones(labels.shape, bool)


@dataclass(frozen=True)
class Signs(LabelRule):
    """Two classes, which become +1 and -1: {0, 1}, {-1, 1}, or with a ``positive_label`` any two.

    One single label is allowed (a loss is defined; ``one_class`` warns), but a ``positive_label``
    has to occur.
    """

    positive_label: float | None = None
    gathers: ClassVar[bool] = True

    @property
    def help(self) -> str:
        """What is allowed."""
        return _PAIRS

    def unusable(self, label: float, seen: Iterable[float]) -> str | None:
        """Why ``label`` cannot join the labels ``seen`` before it (None: it can)."""
        others = sorted(set(seen) - {label})
        if self.positive_label is None:
            if label not in (-1.0, 0.0, 1.0):
                return f"the label is {label:g}; {_PAIRS}"
            if {label, *others} >= {-1.0, 0.0}:
                return f"the label is {label:g}, but others are {others}; {_PAIRS}"
        elif len(others) > 1:
            return (
                f"the label is {label:g}, but others are {others}; with "
                f"positive_label={self.positive_label:g} there must be exactly two"
            )
        return None

    def check_all(self, partitions: Mapping[int, Iterable[float]]) -> list[float]:
        """All distinct labels, sorted; ValueError unless those of all partitions go together."""
        known = super().check_all(partitions)
        if self.positive_label is not None and self.positive_label not in known:
            raise ValueError(
                f"positive_label={self.positive_label:g} does not occur; the labels are {known}"
            )
        return known

    def encode(self, labels: Floats) -> Floats:
        """+1.0 where the label is the positive one (1 unless given), else -1.0."""
        positive = 1.0 if self.positive_label is None else self.positive_label
        return np.where(labels == positive, 1.0, -1.0)


@dataclass(frozen=True)
class Classes(LabelRule):
    """The numbers 0, 1, ... of classes."""

    gathers: ClassVar[bool] = True

    @property
    def help(self) -> str:
        """What is allowed."""
        return (
            f"allowed are the numbers of classes, 0, 1, ..., below {_MOST_CLASSES:,} (see "
            "pyspark.ml.feature.StringIndexer)"
        )

    def _usable(self, labels: Floats) -> Mask:
        usable: Mask = (labels >= 0.0) & (labels < _MOST_CLASSES) & (labels == np.floor(labels))
        return usable


@dataclass(frozen=True)
class Numbers(LabelRule):
    """Numbers from ``least`` on, or above it."""

    least: float = -np.inf
    above: bool = False

    @property
    def help(self) -> str:
        """What is allowed."""
        least = f"above {self.least:g}" if self.above else f"of {self.least:g} and more"
        return f"this loss takes labels {least}"

    def _usable(self, labels: Floats) -> Mask:
        return labels > self.least if self.above else labels >= self.least


_RULES: Mapping[str, Callable[[], LabelRule]] = MappingProxyType(
    {
        "signs": Signs,
        "classes": Classes,
        "real": Numbers,
        "counts": lambda: Numbers(0.0),
        "positive": lambda: Numbers(0.0, above=True),
    }
)
KINDS = tuple(_RULES)
"""What ``Loss.labels`` may be. "counts" are 0 or more, whole or not."""


def rule(kind: str, positive_label: float | None = None) -> LabelRule:
    """The rule of that kind. ValueError if it takes no ``positive_label``, or is unknown."""
    if kind not in _RULES:
        raise ValueError(f"labels={kind!r}; allowed are {', '.join(map(repr, KINDS))}")
    if positive_label is None:
        return _RULES[kind]()
    if kind != "signs":
        raise ValueError(
            f"positive_label={positive_label!r} goes with losses of two classes; this one takes "
            f"{kind!r} labels: leave it out"
        )
    if isinstance(positive_label, str) or not isinstance(positive_label, SupportsFloat):
        raise TypeError(
            f"positive_label={positive_label!r}; must be a number of the label column (for text "
            "see pyspark.ml.feature.StringIndexer)"
        )
    return Signs(float(positive_label))


def classes(rule: LabelRule, distinct: Iterable[float]) -> tuple[float, float] | None:
    """Of two classes the labels that mean -1 and +1; None for labels of other kinds."""
    if not isinstance(rule, Signs):
        return None
    positive = 1.0 if rule.positive_label is None else rule.positive_label
    others = [label for label in distinct if label != positive]
    return (others[0] if others else 0.0 if positive else 1.0), positive


def one_class(column: str, label: float, rows: int) -> str:
    """The warning for data whose labels are all the same."""
    return (
        f"label={column!r}: all {rows:,} labels are {label:g}; a classifier needs two classes, "
        "and without a penalty the loss has no minimum"
    )
