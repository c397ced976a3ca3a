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
# Operations: dtypes, precision and reproducibility

Use this page to look up the elementwise functions and reductions that servers compute, the dtype of
each result, and its precision.

```python
import numpy as np
import distvec as dv

with dv.local(servers=2, in_process=True) as ps:
    x = ps.array(np.arange(4, dtype=np.int32))
    print(dv.exp(x).dtype, np.add(x, x).dtype, x.sum().dtype)
```

```text
float64 int32 int64
```

## Elementwise functions

Call them as `dv.NAME(x)`, as `x.__array_namespace__().NAME(x)`, or by NumPy's name. The last columns
show the dtype of the result for arguments of one dtype. `-` is a `TypeError`, as in NumPy, or because
NumPy's loop computes in a dtype that the servers do not support.
"""

_REST = """\
[NumPy functions](numpy.md) lists each public name of NumPy.

Further functions are `where(condition, x, y)`, `clip(x, low, high)`, `astype`, `zeros_like`,
`ones_like`, `full_like`, `empty_like`, `isclose` and `nan_to_num`. Under NumPy's names only:
`divmod`, `frexp`, `modf`, `real`, `imag`, `angle`, `isreal`, `iscomplex`, `isposinf`, `isneginf`,
`fix`, `sinc`, `polyval` and `isin`.

| Call | Effect |
|---|---|
| `ufunc.at(x, indices, values)` | applies each repeated index in order |
| `ufunc.outer(x, y)` of vectors | returns a table |
| `ufunc(..., out=y)`, `ufunc(..., out=y, where=mask)` | works as in NumPy |
| `x[mask] = number` | assigns to the elements at which `mask` is true; lazy |
| `x[:] = y` | assigns to all elements; lazy |

## Reductions

The servers compute {reductions}. Built from these are `mean`, `count_nonzero`, `dot` (`@`, `vdot`,
`vecdot`), `norm` (1, 2, inf, any p), {statistics}.

All except the inner products take `axis` and `keepdims`; `keepdims=True` of a vector gives shape
`(1,)`. They take `out`, `where`, `initial` and `dtype` if NumPy's functions do.

| Function | Cost |
|---|---|
| `var`, `std` | 2 requests, 1 pass each: first the mean, then the deviations from it |
| functions that ignore NaN, such as `nanmean` | 1 pass for each pass of NumPy |
| `allclose`, `array_equal`, `array_equiv` | eager: they return a `bool` |
| `nanargmin`, `nanargmax` | eager: they raise an error if all elements are NaN |
| `average` with weights | eager: it raises an error if the weights sum to zero |

## Precision

- Floats accumulate in float64, signed integers in int64 and unsigned integers in uint64. The result
  is rounded once.
- A float32 sum, mean, dot product or norm is float32, as in NumPy. It is mostly closer to the exact
  value, because NumPy accumulates in float32. Its last bits can differ from NumPy's.
- A float32 or float16 sum whose partial sums exceed the range of its dtype is finite here, if its
  final value fits.
- Sums of integers equal NumPy's, modulo 2^64.
- float16 is rounded after each operation. Expressions with float16 run NumPy's loops, never compiled
  kernels: they need less memory, not less time.
- Integers wrap around. A Python integer that the dtype cannot hold raises `OverflowError`, as in
  NumPy 2.
- Complex numbers are not supported.

## Reproducibility

Most functions are bitwise identical in every engine, for any number of servers and threads, and on
every x86-64 processor: `+ - * /`, `sqrt`, comparisons, and all outside the list below. So are sums,
products, inner products and norms: floats are added in one order, and multiplications and additions
are not fused. If several operands are NaN, the payload of the NaN in the result is unspecified.

The following functions come from NumPy, or from the C library below NumPy and SciPy. These have
versions for several instruction sets, which can differ in the last bits:
{varying}.

| Computation | Bitwise identical for |
|---|---|
| functions in this list | any number of servers on processors of one kind |
| products of tables, decompositions, `T.T @ U` | the BLAS and LAPACK version on processors of one kind |
| sums along axis 0 | any processor, if the same expressions are evaluated in the same pass |

`distvec status` and `ps.client.status()` show two digests of each server, computed on known values:
`bits` for its arithmetic and `functions` for the functions above. Servers with equal digests compute
equal results. A server computes the digests at the first status request, in about 10 ms.

See also: [The array API standard](array_api.md), version {version} with ranks 0 to 2.
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
