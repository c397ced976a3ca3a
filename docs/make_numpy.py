"""Write docs/reference/numpy.md from examples that are run: ``python -m docs.make_numpy``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from docs.numpy_examples import examples
from docs.numpy_examples.no_array import no_arrays
from docs.numpy_examples.operands import LEGEND
from docs.numpy_examples.refused import REFUSED
from docs.numpy_examples.trial import MOST_BYTES, Trial, run_all

PAGE = Path(__file__).with_name("reference") / "numpy.md"
WORKS, PARTLY, PULLS, REFUSES = "works", "partly", "brings all", "refuses"

_INTRODUCTION = """\
# NumPy's functions on arrays of the servers

Made by `python -m docs.make_numpy`, which runs each example below on two servers and on NumPy
{version}, and compares values, dtypes and shapes.

{legend}

Of the {total} public names of `numpy`, `numpy.linalg` and `numpy.ndarray` {working} work,
{partly} of them not in every form; {pulling} bring all elements to the client, which
`ps.implicit_transfers` counts and `ps.strict()` refuses, if that is not what they are for;
{refusing} are refused with what to type instead; {without} take no array. Out of scope are
`numpy.fft`, `numpy.random` (numbers at random: `ps.random`) and the other modules listed at the
end. Arrays have rank 2 at most. What is the same for all rows of a table travels through the
client, lazily, as in `np.broadcast_to(x, (3, n))`: 2^22 elements at most.

Two differences have no refusal. Divisions by zero, overflows, invalid values give `inf` and `nan`
without a `RuntimeWarning`, and `np.errstate` does not change that: ask with
`np.isfinite(x).all()`. A result of rank 0, as `x.sum()`, is a lazy array, as NumPy's
`np.array(1.0)`, and no scalar: `isinstance(x.sum(), np.floating)` and `np.isscalar(x.sum())` are
false. `np.issubdtype(x.sum().dtype, np.floating)` asks for the dtype, and `x.sum().item()` brings
a Python number.

Of memory there is less to choose. `order=` is checked, and decides whether `np.asarray(T,
order="F")` is `T` or a copy, but elements stay as they are split: by rows (C's order) or, of `T.T`,
by columns; `np.ravel(T.T, "K")` reads them as they are. `overwrite_input=True` leaves the input as
it was. Warnings of values, as of slices of nothing but NaN, are not given either. `bytes(x)` is the
memory of `x.numpy()`; `bytearray(x)` goes by the elements, as Python does before 3.12 with all that
is no buffer: write `bytearray(x.numpy())`. float16 is computed where NumPy's linear algebra has no
loops for it.

Behind each example stands what a call and the evaluation of its result cost: messages to each
server, whether they are sent at once or, lazily, when the result is asked for, and whether elements
(or no more than {most} bytes: borders) move from server to server.
"""
_HEAD = "| name | | what works | what does not, and what is said |\n|---|---|---|---|"


def trials() -> dict[str, list[Trial]]:
    """By name what became of its examples."""
    found = run_all(text for texts in examples().values() for text in texts)
    return {name: [found[text] for text in texts] for name, texts in examples().items()}


def refusals() -> dict[str, list[Trial]]:
    """By kind what became of the examples of what servers refuse."""
    found = run_all(text for _, texts in REFUSED.values() for text in texts)
    return {kind: [found[text] for text in texts] for kind, (_, texts) in REFUSED.items()}


def status(tried: Sequence[Trial]) -> str:
    """What is to be said of a name, by its examples."""
    working = sum(trial.works for trial in tried)
    if working:
        return WORKS if working == len(tried) else PARTLY
    return PULLS if any(trial.pulls for trial in tried) else REFUSES


def page(tried: Mapping[str, list[Trial]], refused: Mapping[str, list[Trial]]) -> str:
    """The text of the page."""
    parts = [_introduction(tried), "## What is refused, and why\n"]
    for kind, trials in refused.items():
        parts[-1] += f"\n**{kind}.** {REFUSED[kind][0]}\n"
        parts[-1] += "".join(f"\n- `{one.text}`: {_reason(one)}" for one in trials) + "\n"
    for title, prefix, names in tables():
        parts.append(f"## {title}\n\n{_HEAD}")
        rows = (f"{prefix}{name}" for name in sorted(names, key=str.lower))
        parts[-1] += "".join(f"\n{_row(name, tried[name])}" for name in rows if name in tried)
    parts.append("## What takes no array\n")
    parts[-1] += "".join(f"\n- {what}: {_listed(names)}" for what, names in no_arrays().items())
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def tables() -> tuple[tuple[str, str, list[str]], ...]:
    """Of each table of the page its title, what its names begin with, and NumPy's names."""
    members = [name for name in dir(np.ndarray) if not name.startswith("_")]
    return (
        ("numpy", "np.", np.__all__),
        ("numpy.linalg", "np.linalg.", np.linalg.__all__),
        ("Methods and attributes of arrays", "x.", members),
    )


def _introduction(tried: Mapping[str, list[Trial]]) -> str:
    counts = Counter(map(status, tried.values()))
    without = sum(map(len, no_arrays().values()))
    return _INTRODUCTION.format(
        version=np.__version__,
        legend=LEGEND,
        total=len(tried) + without,
        working=counts[WORKS] + counts[PARTLY],
        partly=counts[PARTLY],
        pulling=counts[PULLS],
        refusing=counts[REFUSES],
        without=without,
        most=MOST_BYTES,
    )


def _row(name: str, tried: Sequence[Trial]) -> str:
    working = "; ".join(f"`{one.text}` ({one.cost})" for one in tried if one.works)
    others = "; ".join(f"`{one.text}`: {_reason(one)}" for one in tried if not one.works)
    cells = f"`{name}`", status(tried), working, others
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _reason(trial: Trial) -> str:
    if trial.refusal:
        return f"*{trial.refusal.replace('*', chr(92) + '*')}*"
    if trial.pulls:
        return "brings the elements to the client" + (", counted" if trial.counted else "")
    return f"wrong: {trial.wrong}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page(trials(), refusals()))
