"""Tables that are split by columns have NumPy's methods, as those that are split by rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv

TABLE = np.random.default_rng(0).standard_normal((5, 1030))

RESULTS: dict[str, Callable[[Any], Any]] = {
    "argsort": lambda t: t.argsort(axis=1),
    "clip": lambda t: t.clip(-1, 1),
    "compress": lambda t: t.compress([True, False, True], axis=0),
    "conj": lambda t: t.conj(),
    "diagonal": lambda t: t.diagonal(1),
    "flat": lambda t: t.flat[1029:1032],
    "flatten": lambda t: t.flatten(),
    "imag": lambda t: t.imag,
    "item": lambda t: np.array([t.item(0, -1), t.item(1031), t.item(-1)]),
    "itemsize": lambda t: np.array(t.itemsize),
    "nonzero": lambda t: (t > 1).astype(int)[0],
    "repeat": lambda t: t.repeat(2, axis=0),
    "reshape": lambda t: t.reshape(10, 515),
    "round": lambda t: t.round(1),
    "squeeze": lambda t: t[:, :1].squeeze(),
    "swapaxes": lambda t: t.swapaxes(0, 1),
    "take": lambda t: t.take([3, 0], axis=0),
    "trace": lambda t: t.trace(),
    "transpose": lambda t: t.transpose(1, 0),
    "broadcast beside rows": lambda t: np.broadcast_arrays(np.ones((5, 1)), t)[1],
    "matmul": lambda t: np.linalg.matmul(t[:, :3], np.ones((3, 2))),
}


def _changed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def on_copy(table: Any) -> Any:
        changed = table.copy()
        function(changed)
        return changed

    return on_copy


def _flat(table: Any) -> None:
    table.flat[1029:1032] = [7.0, 8.0, 9.0]


IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "fill": lambda t: t.fill(2.5),
    "sort": lambda t: t.sort(axis=1),
    "put": lambda t: t.put([1, 1031], [7.0, 8.0]),
    "flat": _flat,
    "fill_diagonal": lambda t: np.fill_diagonal(t, 9.0),
    "copyto": lambda t: np.copyto(t, 1.0, where=t > 0),
    "putmask": lambda t: np.putmask(t, t > 0, [1.0, 2.0, 3.0]),
    "put_along_axis": lambda t: np.put_along_axis(t, t.argmax(axis=1).reshape(-1, 1), 0.0, 1),
}


@pytest.mark.parametrize("name", [*RESULTS, *(f"{name} in place" for name in IN_PLACE)])
def test_as_numpys(ps: dv.Session, name: str) -> None:
    function = RESULTS.get(name) or _changed(IN_PLACE[name.removesuffix(" in place")])
    ours = function(ps.array(np.ascontiguousarray(TABLE.T)).T)
    expected = function(TABLE)
    found = ours.numpy() if hasattr(ours, "numpy") else np.asarray(ours)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_refused(ps: dv.Session) -> None:
    table = ps.zeros((3, 2)).T
    with pytest.raises(IndexError):
        table.item(6)
    with pytest.raises(AttributeError, match=r"x\.numpy\(\)\.tobytes"):
        table.tobytes()
