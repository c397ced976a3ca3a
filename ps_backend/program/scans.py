"""The table of scans: the ufuncs whose running results servers compute along axis 0.

A scan is computed block by block: the total of each block alone, then the totals in the order of
the blocks, which gives the *carry* into each, then each block from its carry on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ps_backend.program.movements import Movement, MovementTypes, Params, register
from ps_backend.program.types import ArrayType, ClientType, dtype_of, widest


@dataclass(frozen=True, slots=True)
class Scan:
    """One associative ufunc."""

    ufunc: np.ufunc
    identity: float | None = None
    """What a block with nothing before it goes on from, if it is the same in every dtype."""
    of_floats: float | None = None
    """That of floats, where it is another one: joined to it, no value changes one bit."""
    of_integers: str = ""
    """``"least"``, ``"greatest"`` or ``"ones"``: that of integers, which depends on the dtype."""
    rounds: bool = False
    """Results of floats depend on the order in which they are joined."""
    truth: bool = False
    """Joins whether values are true."""

    @property
    def name(self) -> str:
        """NumPy's name of the ufunc."""
        return self.ufunc.__name__

    @property
    def kind(self) -> str:
        """The movement that computes the running results of an array."""
        return f"accumulate_{self.name}"

    @property
    def between(self) -> str:
        """The movement that reduces what lies between indices, which are its operand."""
        return f"reduceat_{self.name}"

    @property
    def along_rows(self) -> str:
        """The row op that computes them along each row."""
        return f"row_accumulate_{self.name}"

    def result(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of NumPy's running results of values of ``dtype``.

        ``TypeError`` where it has none, or one that servers have not.
        """
        return _result(self.name, dtype.name)

    def gives(self, dtype: np.dtype[Any]) -> bool:
        """Whether results may be asked for in ``dtype``, to which values are cast first."""
        return self.ufunc in (np.add, np.multiply) or self.result(dtype) == dtype

    def accumulator(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype in which results of ``dtype`` are computed."""
        return dtype if self.truth else widest(dtype.name)

    def start(self, wide: np.dtype[Any]) -> Any:
        """The identity, as a scalar of the accumulator ``wide``."""
        if wide.kind == "f" and self.of_floats is not None:
            return wide.type(self.of_floats)
        if self.of_integers and wide.kind in "iu":
            limits = np.iinfo(wide)
            found = {"least": limits.min, "greatest": limits.max, "ones": ~wide.type(0)}
            return wide.type(found[self.of_integers])
        return wide.type(self.identity)

    def is_exact(self, wide: np.dtype[Any]) -> bool:
        """Whether results computed in ``wide`` are the same however they are joined."""
        return not self.rounds or wide.kind != "f"


_INFINITY, _NAN = float("inf"), float("nan")
_ROWS = (
    Scan(np.add, 0, of_floats=-0.0, rounds=True),
    Scan(np.multiply, 1, rounds=True),
    Scan(np.maximum, of_floats=-_INFINITY, of_integers="least"),
    Scan(np.minimum, of_floats=_INFINITY, of_integers="greatest"),
    Scan(np.fmax, of_floats=_NAN, of_integers="least"),
    Scan(np.fmin, of_floats=_NAN, of_integers="greatest"),
    Scan(np.logical_and, True, truth=True),
    Scan(np.logical_or, False, truth=True),
    Scan(np.logical_xor, False, truth=True),
    Scan(np.bitwise_and, of_integers="ones"),
    Scan(np.bitwise_or, 0),
    Scan(np.bitwise_xor, 0),
    Scan(np.logaddexp, -_INFINITY, rounds=True),
    Scan(np.logaddexp2, -_INFINITY, rounds=True),
)

SCANS: dict[str, Scan] = {row.name: row for row in _ROWS}
"""By the name of the ufunc."""


@lru_cache(maxsize=256)
def _result(name: str, dtype: str) -> np.dtype[Any]:
    return dtype_of(SCANS[name].ufunc.accumulate(np.ones(1, dtype)).dtype.name)


# --- movements ----------------------------------------------------------------------------------


def _check_scan(scan: Scan, types: MovementTypes, params: Params) -> None:
    """One array, one of the same space and row; any dtype may be asked for."""
    (source,), ((number, made),) = types.inputs, types.outputs
    _need(not types.operands and not params and number == 0, "takes one array")
    fits = isinstance(made, ArrayType) and (made.space, made.row) == (source.space, source.row)
    _need(fits, f"makes an array like {source}, not {made}")
    _need(scan.gives(made.dtype), f"gives no {made.dtype}")


def _check_between(scan: Scan, types: MovementTypes, params: Params) -> None:
    """One array and indices, of which the client gets a row for each."""
    (source,), (indices,), ((number, made),) = types.inputs, types.operands, types.outputs
    _need(not params and number == 0, "takes one array")
    _need(indices.dtype == "int64" and len(indices.row) == 1, f"needs indices, got {indices}")
    fits = isinstance(made, ClientType) and made.shape == (*indices.row, *source.row)
    _need(fits, f"makes a row for each index, not {made}")
    _need(scan.gives(made.dtype), f"gives no {made.dtype}")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(what)


for _row in _ROWS:
    register(Movement(_row.kind, 2, partial(_check_scan, _row)))
    register(Movement(_row.between, 2, partial(_check_between, _row)))
