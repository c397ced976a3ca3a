"""Functions of arrays, for NumPy's as for those of servers, whose gradients tests look at."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import special

import distvec as dv

LENGTH, WIDTH = 2500, 5
"""Three blocks, so that two servers share them."""


def inputs() -> dict[str, np.ndarray]:
    """Vectors x and c, tables T and U, a row w, a matrix S; indices, a permutation and a mask."""
    rng = np.random.default_rng(5)
    shapes = {"x": (LENGTH,), "c": (LENGTH,), "T": (LENGTH, WIDTH), "U": (LENGTH, 3)}
    found = {name: rng.uniform(0.5, 1.5, shape) for name, shape in shapes.items()}
    return found | {
        "w": rng.uniform(0.5, 1.5, WIDTH),
        "S": rng.uniform(0.5, 1.5, (WIDTH, 4)),
        "i": rng.integers(0, LENGTH, 1800),
        "p": rng.permutation(LENGTH),
        "m": rng.standard_normal(LENGTH) > 0,
    }


BY = ("x", "c", "T", "w")
"""By these the functions are differentiated."""


def _of_rows(name: str, x: Any, axis: int | None = None) -> Any:
    return getattr(special if isinstance(x, np.ndarray) else dv, name)(x, axis=axis)


def in_place(a: Any) -> Any:
    y = a.x * 2
    y += a.c * a.x
    y[3:7] *= a.x[3:7]
    y[::2] = 1.5
    y[4:1300] = a.x[:1296] ** 2
    return np.sum(y**2)


def assigned(a: Any) -> Any:
    y = np.zeros_like(a.x)
    y[1:] = a.x[:-1] ** 2
    y[0] = a.x[5]
    y[a.m] += a.x[a.m]
    y[[7, 9, 7]] = a.w[:3]
    z = np.zeros_like(a.T)
    z[:, 1] = a.x
    z[2] = a.w
    z[:, 3:] = a.T[:, :2]
    return np.sum(y**2 * a.c) + np.sum(z**2)


def added_at(a: Any) -> Any:
    y = a.c * 1
    np.add.at(y, a.i, a.x[: len(a.i)] ** 2)
    z = a.c * 1
    z[a.i] = a.x[: len(a.i)] ** 2
    return np.sum(y * y) + np.sum(z * z * a.c)


Function = Callable[[SimpleNamespace], Any]
FUNCTIONS: dict[str, Function] = {
    "powers": lambda a: np.sum(a.x**3 + 2.5 * a.x / a.c - np.exp(-a.x) + a.x**a.c + 2.0**a.x),
    "ufuncs": lambda a: np.sum(np.hypot(a.x, a.c) + np.arctan2(a.x, a.c) + np.maximum(a.x, a.c)),
    "special": lambda a: np.sum(
        special.expit(a.x) * special.erf(a.c) + special.gammaln(a.x) + special.xlogy(a.x, a.c)
    ),
    "clip and abs": lambda a: np.sum(np.clip(a.x, 0.7, 1.2) ** 2 + np.abs(a.x - a.c)),
    "where": lambda a: np.sum(np.where(a.m, a.x**2, np.log(a.x))),
    "float32": lambda a: np.sum(a.x * (a.c.astype(np.int64) * a.x)),
    "mean": lambda a: np.mean(np.log(a.x) * a.c),
    "norms": lambda a: np.linalg.norm(a.x - a.c) + np.linalg.norm(a.x, 1) * np.linalg.norm(a.c, 3),
    "norm of the largest": lambda a: np.linalg.norm(a.x, np.inf),
    "inner products": lambda a: a.x @ a.c * (a.x @ a.x) + np.vdot(a.T, a.T * 2),
    "extremes": lambda a: np.max(a.x * a.c) + np.min(a.T) * np.ptp(a.c),
    "product": lambda a: np.prod(a.x[:10]) * np.prod(a.x[5:9] - a.x[5]),
    "variance": lambda a: np.var(a.x) * np.std(a.c) + np.sum(np.var(a.T, axis=0) * a.w),
    "not NaN": lambda a: np.nanmean(a.x**2),
    "T @ w": lambda a: np.sum(np.tanh(a.T @ a.w)),
    "x @ T": lambda a: np.sum((a.x @ a.T) ** 2) * 1e-3,
    "T.T @ U": lambda a: np.sum((a.T.T @ a.U) ** 2) * 1e-3,
    "T.T @ T": lambda a: np.sum((a.T.T @ a.T) ** 2) * 1e-3,
    "T @ S": lambda a: np.sum((a.T @ a.S) ** 2),
    "T.T @ x": lambda a: np.sum(a.T.T * a.x) + np.sum((a.T.T @ a.x) ** 2) * 1e-3,
    "einsum": lambda a: np.sum(np.einsum("ij,j->i", a.T, a.w) ** 2),
    "outer": lambda a: np.sum(np.outer(a.x, a.w) ** 2),
    "along axis 0": lambda a: np.sum(np.sum(a.T, axis=0) ** 2) + np.sum(np.max(a.T, axis=0) * a.w),
    "along axis 1": lambda a: np.sum(np.sum(a.T, axis=1) ** 2 * np.max(a.T, axis=1)),
    "products of rows": lambda a: np.sum(np.prod(a.T, axis=1)) + np.sum(np.min(a.T, axis=1)),
    "shares": lambda a: np.sum((a.T / np.sum(a.T, axis=1, keepdims=True)) ** 2),
    "centred": lambda a: np.sum((a.T - np.mean(a.T, axis=0)) ** 3 / np.sum(a.T, axis=0)),
    "broadcast": lambda a: np.sum((a.T * a.w + a.x[:, None]) ** 2) + np.sum(a.T + a.w),
    "softmax": lambda a: np.sum(_of_rows("softmax", a.T, 1)[:, 1] * a.c),
    "logsumexp": lambda a: np.sum(_of_rows("logsumexp", a.T, 1)) + _of_rows("logsumexp", a.x),
    "slices": lambda a: np.sum(a.x[1:] * a.x[:-1]) + np.sum(a.x[::2] ** 2) + np.sum(a.c[1::3]),
    "backwards": lambda a: np.sum(a.x[::-1] * a.c**2 * a.x) + np.sum(np.flip(a.T) * a.T),
    "rows and columns": lambda a: np.sum(a.T[2:9] ** 2) + np.sum(a.T[:, 1] * a.T[:, 1:4].T),
    "columns by number": lambda a: np.sum(a.T[:, [0, 3, 0]] ** 3) + np.sum(a.T[:, [4, 2]] ** 3),
    "elements": lambda a: a.x[3] * a.x[5] + a.T[2, 1] ** 2 + np.sum(a.x[[1, 4, 1]] ** 2),
    "gathers": lambda a: np.sum(a.x[a.i] ** 2) + np.sum(a.T[a.i] ** 2) + np.sum(a.x[a.p] * a.x),
    "masks": lambda a: np.sum(a.x[a.m] ** 2) + np.max(a.c[a.m] ** 2),
    "concatenate": lambda a: np.sum(np.concatenate([a.x, a.c * a.x, a.x[:3], a.w]) ** 2),
    "side by side": lambda a: np.sum(np.concatenate([a.T, a.U, a.T], axis=1) @ np.arange(13.0)),
    "stack": lambda a: np.sum(np.stack([a.x, a.c], axis=1) ** 2 + np.stack([a.c, a.x]).T ** 3),
    "roll and pad": lambda a: np.sum(np.roll(a.x, 3) * a.c * a.x) + np.sum(np.pad(a.x, 2) ** 2),
    "differences": lambda a: np.sum(np.diff(a.x, n=2) ** 2) + np.sum(np.diff(a.T, axis=0) ** 2),
    "neighbours": lambda a: np.sum(np.gradient(a.x) ** 2) + np.trapezoid(a.x**2, dx=0.1),
    "convolve": lambda a: np.sum(np.convolve(a.x, [1.0, 2.0, 1.0]) ** 2),
    "cumsum": lambda a: np.mean(np.cumsum(a.x) ** 2) + np.mean(np.cumsum(a.T, axis=0)),
    "cumsum of rows": lambda a: np.sum(np.cumsum(a.T, axis=1) ** 2 + np.cumprod(a.T, axis=1)),
    "cumprod": lambda a: np.sum(np.cumprod(a.x[:8])),
    "sort": lambda a: np.sum(np.sort(a.x) * a.c) + np.sum(np.sort(a.T, axis=1) @ np.arange(5.0)),
    "along places": lambda a: np.sum(
        np.take_along_axis(a.T, np.argsort(a.T, axis=1), axis=1) @ np.arange(5.0)
    ),
    "reshape": lambda a: np.sum(np.reshape(a.T, (-1,))[3:] ** 2 + np.tile(a.x, 5)[3:]),
    "repeat": lambda a: np.sum(np.repeat(a.x, 3) ** 2) + np.sum(np.triu(a.T) ** 2),
    "small linear algebra": lambda a: (
        np.sum(np.linalg.solve(a.T.T @ a.T / LENGTH + np.eye(5), a.w) * a.w)
        + np.linalg.det(a.T.T @ a.T / LENGTH) * np.sum(np.linalg.inv(a.T.T @ a.T / LENGTH))
    ),
    "of the client": lambda a: np.trace((a.T.T @ a.T) / LENGTH) + np.sum(np.cumsum(a.x @ a.T)[1:]),
    "recurrence": lambda a: (
        np.sum(dv.linear_recurrence(0.5 * a.c, a.x, a.x[0]) ** 2)
        + np.sum(dv.linear_recurrence(0.9, a.T, a.w))
    ),
    "in place": in_place,
    "assigned": assigned,
    "added at": added_at,
}
