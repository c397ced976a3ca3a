"""Write docs/reference/operations.md from the op table: ``python -m docs.make_operations``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from distvec.array.dispatch.array_api import VERSIONS
from distvec.array.dispatch.functions import COMPARISONS, STATISTICS
from distvec.graph import build
from ps_backend.program import ops
from ps_backend.program.reducers import PUBLIC
from ps_backend.program.types import DTYPES

PAGE = Path(__file__).with_name("reference") / "operations.md"

_INTRODUCTION = """\
# Operations

Made from the op table (`ps_backend/program/ops.py`) by `python -m docs.make_operations`.

Elementwise functions, called as `distvec.NAME(x)`, as `x.__array_namespace__().NAME(x)`, or by
NumPy's own name. The last columns say which dtype the result has for arguments of one dtype; `-` is
a `TypeError`, as in NumPy or because NumPy's loop works in a dtype that the servers do not have.
"""

_REST = """\
What becomes of each public name of NumPy: [numpy.md](numpy.md).

Besides these: `where(condition, x, y)`, `clip(x, low, high)`, `astype`, `zeros_like`, `ones_like`,
`full_like`, `empty_like`, `isclose`, `nan_to_num`; under NumPy's names `divmod`, `frexp` and
`modf`, `real`, `imag`, `angle`, `isreal`, `iscomplex`, `isposinf`, `isneginf`, `fix`, `sinc`,
`polyval` and `isin`.
`ufunc.at(x, indices, values)` takes each repeated index in its turn. `ufunc.outer` of vectors is a
table. Ufuncs take `out=`, and with it `where=`.

Reductions: {reductions}, and what is made of them: `mean`, `count_nonzero`, `dot` (`@`, `vdot`,
`vecdot`), `norm` (1, 2, inf, any p), {statistics}.
All but the inner products take `axis` and `keepdims`; with it the result has shape `(1,)`. They
take `out`, `where`, `initial` and `dtype` where NumPy's do.

`var` and `std` take two messages, of one sweep each: the mean, then the deviations from it. The
functions of what is not NaN take one sweep for each of NumPy's passes. `allclose`, `array_equal`
and `array_equiv` give a `bool`, so they evaluate; so do `nanargmin` and `nanargmax`, which raise
where all is NaN, and `average` with weights, which raises where these sum to zero.

Floats accumulate in float64, integers in int64 or, if unsigned, uint64, and what comes out is
rounded once. So a float32 sum, mean, dot or norm is float32 as NumPy's, but mostly closer to the
exact value: NumPy adds float32 in float32, and float16 too. Its last bits differ from NumPy's
therefore; a sum that leaves float32 on the way, not at its end, is finite here. Sums of integers
are those of NumPy, modulo 2^64.

## The same bits

For `+ - * /`, `sqrt`, comparisons, and whatever the list below does not name, an element has the
same bits in every engine, for any number of servers and threads, and on every x86-64 processor.
So have sums, products, inner products and norms: floats are added up in one order
(`ps_backend/program/summation_order.py`), and nothing is contracted to fused multiply-adds. Which
of several NaNs a result is, is left open.

Of these functions NumPy, or the C library beneath NumPy and SciPy, has versions for several
instruction sets, which may differ in last bits:
{varying}.
All engines call the same version, so that they agree on one machine; between processors of
different kinds they need not, nor does what is made of them. Products of tables, decompositions and
`T.T @ U` have the bits of BLAS and LAPACK, which choose by the processor too. Sums along axis 0 do
not depend on the processor, but may in last bits on what else is computed in the same sweep.

`distvec status` and `ps.client.status()` show two digests of each server, of its arithmetic
(`bits`) and of the functions above (`functions`), on known values: servers that have both alike
compute alike. Computing them takes some ten milliseconds, when a server is first asked.

float16 is rounded after each operation, integers wrap around, and a Python integer that the dtype
of the array cannot hold is an `OverflowError`, as in NumPy 2. What has a float16 in it runs NumPy's
own loops, never compiled ones: it takes less memory, not less time. Complex numbers are refused.

`x[mask] = number` sets where a boolean vector is true, `x[:] = y` sets all; both are lazy.

## The array API standard

`x.__array_namespace__()` has every function of version {version}, for ranks 0 to 2:
see [array_api.md](array_api.md).
"""


def page() -> str:
    """The text of the page."""
    head = ["name", "arguments", "NumPy", *DTYPES]
    lines = [_INTRODUCTION, _row(head), _row(["---"] * len(head))]
    lines += [_row(_cells(op)) for op in ops.PUBLIC.values()]
    made = (*STATISTICS, *COMPARISONS[1:])
    rest = _REST.format(
        reductions=_listed(PUBLIC),
        statistics=_listed(made),
        varying=_listed(sorted(ops.VARYING)),
        version=VERSIONS[-1],
    )
    return "\n".join([*lines, "", rest])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cells(op: ops.Op) -> list[str]:
    results = [_result(op, dtype) for dtype in DTYPES]
    return [f"`{op.name}`", str(op.arity), f"`{op.numpy.__name__}`", *results]


def _result(op: ops.Op, dtype: str) -> str:
    try:
        return build.resolve(op.name, (np.dtype(dtype),) * op.arity)[1][-1].name
    except TypeError:
        return "-"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
