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
WORKS, PARTLY, PULLS, REFUSES = "works", "partly", "transfers all", "not supported"

_INTRODUCTION = """\
# NumPy functions on distributed arrays

Use this page to see which NumPy functions work on distributed arrays, and at which cost. Each
example below ran on two servers and on NumPy {version}; values, dtypes and shapes are equal unless
the table shows an error.

```python
import numpy as np
import distvec as dv

with dv.local(servers=2, in_process=True) as ps:
    x = ps.array(np.arange(5.0))
    print(np.cumsum(x).numpy(), float(np.median(x)))
```

```text
[ 0.  1.  3.  6. 10.] 2.0
```

| Names of `numpy`, `numpy.linalg` and `numpy.ndarray` | Number |
|---|---|
| all public names | {total} |
| work, at least in some forms | {working} |
| of these: not in every form | {partly} |
| transfer all elements to the client | {pulling} |
| not supported; the error says which call to use | {refusing} |
| take no array | {without} |

`ps.implicit_transfers` counts the transfers of all elements, and `ps.strict()` turns them into
errors. Transfers that you request, such as `x.tolist()`, are not counted.

## The examples

{legend}

After each example follows its cost, for the call and for the evaluation of its result:

| Text | Meaning |
|---|---|
| lazy | the call sends no request; the requests are sent when the result is needed |
| eager | the call sends requests immediately |
| 2 requests | number of requests to each server |
| elements exchanged | servers send elements to each other |
| borders exchanged | servers send each other at most {most} bytes |

## Differences from NumPy

| Subject | Here |
|---|---|
| rank | at most 2 |
| division by zero, overflow, invalid values | `inf` and `nan` without a `RuntimeWarning`; test with `np.isfinite(x).all()` |
| `np.errstate` | has no effect |
| results of rank 0, such as `x.sum()` | lazy arrays, not scalars; `x.sum().item()` returns a Python number |
| `np.isscalar(x.sum())` | `False`; use `np.issubdtype(x.sum().dtype, np.floating)` |
| `order=` | validated; the partitioning does not change |
| `overwrite_input=True` | does not change the input |
| warnings about values, such as the mean of no elements | not issued |
| `bytes(x)` | the memory of `x.numpy()` |
| `bytearray(x)` | before Python 3.12 converts elements; write `bytearray(x.numpy())` |
| float16 in linear algebra | supported, although NumPy has no loops for it |
| a table of equal rows, such as `np.broadcast_to(x, (3, n))` | sent by the client, lazily; at most 2^22 elements |

`np.asarray(T, order="F")` returns `T` itself if it is partitioned by columns, as `T.T` is, and a
copy otherwise. `np.ravel(T.T, "K")` reads elements in memory order.

Not covered are `numpy.fft`, `numpy.random` (use `ps.random`) and the other modules at the end.
"""
_HEAD = "| Name | Status | These calls work | These calls raise an error |\n|---|---|---|---|"


def trials() -> dict[str, list[Trial]]:
    """By name what became of its examples."""
    found = run_all(text for texts in examples().values() for text in texts)
    return {name: [found[text] for text in texts] for name, texts in examples().items()}


def refusals() -> dict[str, list[Trial]]:
    """By kind what became of the examples of what servers refuse."""
    found = run_all(text for _, texts in REFUSED.values() for text in texts)
    return {kind: [found[text] for text in texts] for kind, (_, texts) in REFUSED.items()}


def status(tried: Sequence[Trial]) -> str:
    """Return the status of a name from its examples."""
    working = sum(trial.works for trial in tried)
    if working:
        return WORKS if working == len(tried) else PARTLY
    return PULLS if any(trial.pulls for trial in tried) else REFUSES


def page(tried: Mapping[str, list[Trial]], refused: Mapping[str, list[Trial]]) -> str:
    """The text of the page."""
    parts = [_introduction(tried), "## Unsupported calls and their reasons\n"]
    for kind, trials in refused.items():
        parts[-1] += f"\n**{kind}.** {REFUSED[kind][0]}\n"
        parts[-1] += "".join(f"\n- `{one.text}`: {_reason(one)}" for one in trials) + "\n"
    for title, prefix, names in tables():
        parts.append(f"## {title}\n\n{_HEAD}")
        rows = (f"{prefix}{name}" for name in sorted(names, key=str.lower))
        parts[-1] += "".join(f"\n{_row(name, tried[name])}" for name in rows if name in tried)
    parts.append("## Names that take no array\n")
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
        return "transfers the elements to the client" + (", counted" if trial.counted else "")
    return f"wrong: {trial.wrong}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page(trials(), refusals()))
