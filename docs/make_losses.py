"""Write the table of losses in docs/reference/losses.md: ``python -m docs.make_losses``."""

from __future__ import annotations

import inspect
from pathlib import Path

import distvec.losses
from distvec.losses import (
    Absolute,
    Cox,
    EpsilonInsensitive,
    FactorizationMachine,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    ModifiedHuber,
    PairwiseRanking,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    Tweedie,
)

PAGE = Path(__file__).with_name("reference") / "losses.md"
START, END = "<!-- made by python -m docs.make_losses -->\n", "<!-- end of the table -->\n"

_SMOOTHED = "with `smoothing=g` within g/2 of it"

FORMULAS: tuple[tuple[Loss, str], ...] = (
    (Logistic(), "ln(1 + exp(-y m))"),
    (Hinge(), f"max(0, 1 - y m); {_SMOOTHED}"),
    (SquaredHinge(), "max(0, 1 - y m)^2"),
    (ModifiedHuber(), "max(0, 1 - y m)^2 for y m >= -1, -4 y m below"),
    (Squared(), "(m - y)^2 / 2"),
    (Absolute(), f"|m - y|; {_SMOOTHED}"),
    (Huber(), "(m - y)^2 / 2 for |m - y| < t (`threshold`), t |m - y| - t^2 / 2 beyond"),
    (Quantile(), "q (y - m) for m < y (`quantile`), (1 - q) (m - y) for m > y; `smoothing=`"),
    (EpsilonInsensitive(), f"max(0, |m - y| - e) (`epsilon`); {_SMOOTHED}"),
    (SquaredEpsilonInsensitive(), "max(0, |m - y| - e)^2"),
    (Poisson(), "exp(m) - y m"),
    (Gamma(), "m + y exp(-m)"),
    (Tweedie(), "exp((2 - p) m) / (2 - p) + y exp((1 - p) m) / (p - 1), 1 < p < 2 (`power`)"),
    (Softmax(2), "ln sum over k of exp(m_k) - m_y, a margin for each class"),
    (
        FactorizationMachine(),
        "a loss (`row`) of x w + sum over i < j of x_i x_j <V_i, V_j>, `factors` columns in V",
    ),
    (PairwiseRanking(), "a loss (`row`) of m_i - m_j, for each pair of a group with y_i > y_j"),
    (Cox(), "ln(sum over t_j >= t_i of c_j exp(m_j)) - m_i, for each event at time t_i"),
)

_LABELS = {
    "signs": "two classes",
    "classes": "0, 1, ...",
    "real": "real",
    "counts": "0 or more",
    "positive": "above 0",
}


def losses() -> list[type[Loss]]:
    """Return the exported classes of losses."""
    found = (getattr(distvec.losses, name) for name in distvec.losses.__all__)
    return [
        one
        for one in found
        if isinstance(one, type) and issubclass(one, Loss) and not inspect.isabstract(one)
    ]


def table() -> str:
    """Return the table, in the order of ``FORMULAS``."""
    head = ["loss", "of margin m and label y", "labels", "parameters", "gradient", "Hessian"]
    lines = [head, ["---"] * len(head), *(_cells(*one) for one in FORMULAS)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def page(text: str) -> str:
    """Return the page with a new table."""
    before, _, rest = text.partition(START)
    return f"{before}{START}{table()}{END}{rest.partition(END)[2]}"


def _cells(loss: Loss, formula: str) -> list[str]:
    smoothed = hasattr(loss, "smoothing")
    return [
        f"`{type(loss).__name__}`",
        formula.replace("|", r"\|"),
        _labels(loss),
        ", ".join(_parameter(one.name, one.row) for one in loss.parameters),
        "jumps, unless smoothed" if smoothed else "jumps" if loss.has_kinks else "continuous",
        "products, if smoothed" if smoothed else "products" if loss.has_products else "-",
    ]


def _labels(loss: Loss) -> str:
    if loss.order:
        return {"time": "times", "group": "grades"}[loss.order]
    return "as for `row`" if hasattr(loss, "factors") else _LABELS[loss.labels]


def _parameter(name: str, row: tuple[int, ...]) -> str:
    shape = "table" if row else "vector"
    return f"`{name}`, a {shape}" if name else f"a {shape}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
