"""Which labels mean +1 and which -1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

_HELP = "allowed are {0, 1} or {-1, 1}; for other pairs say which is +1: positive_label=..."


def unusable(label: float, seen: Iterable[float], positive_label: float | None) -> str | None:
    """Why ``label`` cannot join the labels ``seen`` before it (None: it can)."""
    others = sorted(set(seen) - {label})
    if positive_label is None:
        if label not in (-1.0, 0.0, 1.0):
            return f"the label is {label:g}; {_HELP}"
        if {label, *others} >= {-1.0, 0.0}:
            return f"the label is {label:g} where others are {others}; {_HELP}"
    elif len(others) > 1:
        return (
            f"the label is {label:g} where others are {others}: a third value; with "
            f"positive_label={positive_label:g} there must be exactly two"
        )
    return None


def signs(labels: npt.NDArray[np.float64], positive_label: float | None) -> npt.NDArray[np.float64]:
    """+1.0 where the label is the positive one (1 unless given), else -1.0."""
    positive = 1.0 if positive_label is None else positive_label
    return np.where(labels == positive, 1.0, -1.0)


def check_all(partitions: Mapping[int, Iterable[float]], positive_label: float | None) -> None:
    """Raise ValueError unless the labels of all partitions together are usable.

    One single label is allowed (the loss is defined; ``one_class`` warns), but a
    ``positive_label`` has to occur.
    """
    known: set[float] = set()
    for partition, labels in partitions.items():
        for label in labels:
            if (reason := unusable(label, known, positive_label)) is not None:
                raise ValueError(f"partition {partition}: {reason}")
            known.add(label)
    if positive_label is not None and positive_label not in known:
        raise ValueError(
            f"positive_label={positive_label:g} does not occur; the labels are {sorted(known)}"
        )


def one_class(column: str, label: float, rows: int) -> str:
    """The warning for data whose labels are all the same."""
    return (
        f"label={column!r}: all {rows:,} labels are {label:g}; with one class there is nothing to "
        "tell apart, and without a penalty the loss has no minimum"
    )
