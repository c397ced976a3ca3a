"""Write the table of losses in docs/reference/losses.md: ``python -m docs.make_losses``."""

from __future__ import annotations

import inspect
from pathlib import Path

import distvec.losses
from distvec.losses import Loss, Parameter

PAGE = Path(__file__).with_name("reference") / "losses.md"
START, END = "<!-- made by python -m docs.make_losses -->\n", "<!-- end of the table -->\n"

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
    """Return the table."""
    head = ["loss", "of margin m and label y", "labels", "parameters", "gradient", "Hessian"]
    lines = [head, ["---"] * len(head), *map(_cells, losses())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def page(text: str) -> str:
    """Return the page with a new table."""
    before, _, rest = text.partition(START)
    return f"{before}{START}{table()}{END}{rest.partition(END)[2]}"


def _cells(kind: type[Loss]) -> list[str]:
    has_classes = "classes" in inspect.signature(kind).parameters
    loss = kind(**{"classes": 2} if has_classes else {})
    smoothed = hasattr(loss, "smoothing")
    return [
        f"`{type(loss).__name__}`",
        loss.formula.replace("|", r"\|"),
        _labels(loss),
        ", ".join(map(_parameter, loss.parameters)),
        "jumps, unless smoothed" if smoothed else "jumps" if loss.has_kinks else "continuous",
        "products, if smoothed" if smoothed else "products" if loss.has_products else "-",
    ]


def _labels(loss: Loss) -> str:
    if loss.order:
        return {"time": "times", "group": "grades"}[loss.order]
    return "as for `row`" if hasattr(loss, "factors") else _LABELS[loss.labels]


def _parameter(one: Parameter) -> str:
    shape = "a table" if one.row else "a number" if one.rows == 1 else "a vector"
    return f"`{one.name}`, {shape}" if one.name else shape


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
