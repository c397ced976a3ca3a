"""A check of the slopes of a row's loss by differences of its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from distvec.losses.loss import RowFunction, evaluate_by_blocks
from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Floats, Rows
from optim.objectives import Derivative, GradientCheck

_ROWS = 200
_STEP = float(np.finfo(np.float64).eps) ** (1.0 / 3.0)


@dataclass(frozen=True)
class RowDerivative(Derivative):
    """A derivative by the margin of a row, a slope or a curvature, computed twice."""

    margin: float
    label: float
    columns: ClassVar[str] = (
        f"{'':12}{'margin':>14}{'label':>14}{'given':>16}{'by differences':>16}"
    )

    @property
    def name(self) -> str:
        """``"slope"`` or ``"curvature"``."""
        return self.direction

    @property
    def given(self) -> float:
        """As the loss gives it."""
        return self.by_gradient

    def __str__(self) -> str:
        numbers = f"{self.given:16.8g}{self.by_differences:16.8g}"
        return f"{self.name:12}{self.margin:14.6g}{self.label:14.6g}{numbers}"


def check_loss(
    loss: RowLoss,
    margins: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    *,
    rtol: float = 1e-5,
    seed: int = 0,
) -> GradientCheck:
    """Compare slopes of a loss with central differences of its values.

    If the loss has curvatures, they are compared with differences of the slopes.

    Parameters
    ----------
    loss : RowLoss
        The loss, such as ``Huber()`` or a function with ``row_loss``.
    margins : array_like, optional
        Margins to check. By default 200 random ones.
    labels : array_like, optional
        Labels to check. By default random ones that the loss allows.
    rtol : float, default 1e-5
        Allowed relative error, in addition to the rounding of the differences.
    seed : int, default 0
        Seed of the random rows. Differences are not derivatives at a kink of the loss. Random
        rows practically never lie there.

    Returns
    -------
    GradientCheck
        True if all derivatives agree. It prints as a table.

    Raises
    ------
    TypeError
        If the loss has no margins. For a ``block_loss`` use ``optim.check_gradient``.
    LossError
        If the function of the loss fails.

    Examples
    --------
    >>> from distvec.losses import check_loss, row_loss
    >>> @row_loss
    ... def cauchy(margins, labels):
    ...     residuals = margins - labels
    ...     return np.log1p(residuals**2), 2 * residuals / (1 + residuals**2)
    >>> assert check_loss(cauchy), check_loss(cauchy)
    """
    if not isinstance(loss, RowLoss):
        raise TypeError(
            f"{loss} has no margins; use optim.check_gradient(objective, x) with an "
            "objective that has this loss"
        )
    rng = np.random.default_rng(seed)
    given = [
        one if one is None else np.array(one, np.float64, ndmin=1) for one in (margins, labels)
    ]
    count = next((one.size for one in given if one is not None), _ROWS)
    m = _margins(rng, count) if given[0] is None else given[0]
    y = _labels(loss.labels, rng, count) if given[1] is None else given[1]
    m, y = np.broadcast_arrays(m, y)
    found = _derivatives("slope", loss, m, y, rtol)
    if loss.has_products:
        found += _derivatives("curvature", loss, m, y, rtol)
    return GradientCheck(tuple(found))


def _derivatives(
    name: str, loss: RowLoss, margins: Floats, labels: Floats, rtol: float
) -> list[RowDerivative]:
    """At each row; of values by slopes, or of slopes by curvatures."""
    place = 0 if name == "slope" else 1
    steps = _STEP * np.maximum(np.abs(margins), 1.0)
    above, below = (_columns(loss, margins + sign * steps, labels)[place] for sign in (1, -1))
    differences = (above - below) / (2.0 * steps)
    given = _columns(loss, margins, labels)[1] if place == 0 else _curvatures(loss, margins, labels)
    rounding = 8.0 * float(np.finfo(np.float64).eps) * (np.abs(above) + np.abs(below)) / steps
    allowed = rounding + rtol * np.maximum(np.maximum(np.abs(given), np.abs(differences)), 1e-3)
    rows = zip(given, differences, allowed, margins, labels, strict=True)
    return [RowDerivative(name, *map(float, row)) for row in rows]


def _columns(loss: RowLoss, margins: Floats, labels: Floats) -> list[Floats]:
    """Values and slopes."""
    return _evaluate(loss.row, ("values", "slopes"), loss, margins, labels)


def _curvatures(loss: RowLoss, margins: Floats, labels: Floats) -> Floats:
    return _evaluate(lambda m, y: (loss.curvature(m, y),), ("curvatures",), loss, margins, labels)[
        0
    ]


def _evaluate(
    function: RowFunction, names: tuple[str, ...], loss: RowLoss, margins: Floats, labels: Floats
) -> list[Floats]:
    rows = Rows(np.empty((labels.size, 0)), np.ascontiguousarray(labels))
    with np.errstate(all="ignore"):
        parts = [
            columns for _, columns in evaluate_by_blocks(function, str(loss), names, rows, margins)
        ]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _margins(rng: np.random.Generator, count: int) -> Floats:
    return rng.choice([0.3, 3.0, 30.0], count) * rng.normal(size=count)


def _labels(kind: str, rng: np.random.Generator, count: int) -> Floats:
    sizes = rng.lognormal(size=count)
    kinds: dict[str, Floats] = {
        "signs": rng.choice([-1.0, 1.0], count),
        "classes": rng.integers(0, 3, count).astype(np.float64),
        "real": rng.normal(size=count),
        "counts": np.where(rng.random(count) < 0.5, np.floor(sizes), sizes),
        "positive": sizes,
    }
    return kinds[kind]
