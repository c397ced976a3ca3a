"""Loops as textbooks write them, which never read a value, cost no more than with ``float()``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

import distvec as dv
from distvec.session import Session

Scalar = Callable[[Any], Any]


def conjugate_gradients(ps: Session, scalar: Scalar, steps: int) -> Any:
    d, b = problem(ps)
    x, r = 0 * b, 1.0 * b
    p, rr = r, scalar(r @ r)
    for _ in range(steps):
        q = d * p
        step = rr / (p @ q)
        x, r = x + step * p, r - step * q
        new = scalar(r @ r)
        p, rr = r + new / rr * p, new
    return x


def conjugate_residuals(ps: Session, scalar: Scalar, steps: int) -> Any:
    d, b = problem(ps)
    x, r = 0 * b, 1.0 * b
    p, dr = r, d * r
    dp, product = dr, scalar(r @ dr)
    for _ in range(steps):
        step = product / (dp @ dp)
        x, r = x + step * p, r - step * dp
        dr = d * r
        new = scalar(r @ dr)
        p, dp, product = r + new / product * p, dr + new / product * dp, new
    return x


def bicgstab(ps: Session, scalar: Scalar, steps: int) -> Any:
    d, b = problem(ps)
    x, r = 0 * b, 1.0 * b
    first, p, rho = r, r, scalar(r @ r)
    for _ in range(steps):
        v = d * p
        step = rho / scalar(first @ v)
        s = r - step * v
        t = d * s
        omega = scalar(t @ s) / scalar(t @ t)
        x, r = x + step * p + omega * s, s - omega * t
        new = scalar(first @ r)
        p, rho = r + new / rho * step / omega * (p - omega * v), new
    return x


def chebyshev(ps: Session, scalar: Scalar, steps: int) -> Any:
    d, b = problem(ps)
    x, p, step = 0 * b, b, 1 / 1.5
    r = b
    for k in range(steps):
        if k:
            beta = (0.25 * step) ** 2
            step = 1 / (1.5 - beta / step)
            p = r + beta * p
        x = x + step * p
        r = b - d * x
        scalar(r[0])
    return x


def lanczos(ps: Session, scalar: Scalar, steps: int) -> Any:
    d, b = problem(ps)
    v, before, beta = b / scalar(np.sqrt(b @ b)), 0 * b, 0.0
    for _ in range(steps):
        u = d * v - beta * before
        u = u - scalar(u @ v) * v
        beta = scalar(np.sqrt(u @ u))
        before, v = v, u / beta
    return v


def lsqr(ps: Session, scalar: Scalar, steps: int) -> Any:
    d, b = problem(ps)
    beta = scalar(np.sqrt(b @ b))
    u = b / beta
    v = d * u
    alpha = scalar(np.sqrt(v @ v))
    v = v / alpha
    w, x, phi, rho_bar = v, 0 * b, beta, alpha
    for _ in range(steps):
        u = d * v - alpha * u
        beta = scalar(np.sqrt(u @ u))
        u = u / beta
        v = d * u - beta * v
        alpha = scalar(np.sqrt(v @ v))
        v = v / alpha
        rho = (rho_bar**2 + beta**2) ** 0.5
        cosine, sine = rho_bar / rho, beta / rho
        theta, rho_bar = sine * alpha, -cosine * alpha
        x, phi = x + cosine * phi / rho * w, sine * phi
        w = v - theta / rho * w
    return x


def gmres(ps: Session, scalar: Scalar, steps: int) -> Any:
    d, b = problem(ps)
    x = 0 * b
    for _ in range(steps // 10 + 1):
        r = b - d * x
        norm = scalar(np.sqrt(r @ r))
        basis, entries = [r / norm], {}
        for j in range(10):
            w = d * basis[j]
            for i in range(j + 1):
                entries[i, j] = scalar(w @ basis[i])
                w = w - entries[i, j] * basis[i]
            entries[j + 1, j] = scalar(np.sqrt(w @ w))
            basis.append(w / entries[j + 1, j])
        matrix, right = np.zeros((11, 10)), np.zeros(11)
        for place, entry in entries.items():
            matrix[place] = entry
        right[0] = norm
        weights = np.linalg.lstsq(matrix, right, rcond=None)[0]
        for weight, vector in zip(weights, basis, strict=False):
            x = x + weight * vector
        x.persist()
    return x


LOOPS = [conjugate_gradients, conjugate_residuals, bicgstab, chebyshev, lanczos, lsqr, gmres]


def problem(ps: Session) -> tuple[Any, Any]:
    """A diagonal matrix and a right side."""
    return ps.array(np.linspace(1, 2, 400)), ps.array(np.cos(np.arange(400.0)))


class Cost(NamedTuple):
    """Of a loop, and its result."""

    messages: int
    reads: int
    calls: int
    cancellations: int
    result: np.ndarray[Any, Any]


def cost(loop: Callable[..., Any], scalar: Scalar, steps: int) -> Cost:
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "/distvec/" in frame.f_code.co_filename

    with dv.local(2, in_process=True) as ps:
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            x = loop(ps, scalar, steps).persist()
        finally:
            sys.setprofile(before)
        counters = ps.counters
        return Cost(counters.messages, counters.vectors_read, calls, ps.cancellations, x.numpy())


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_lazy_loop_costs_no_more(loop: Callable[..., Any]) -> None:
    lazy = {steps: cost(loop, lambda value: value, steps) for steps in (9, 19)}
    for steps, found in lazy.items():
        eager = cost(loop, float, steps)
        assert found.messages <= eager.messages + steps
        assert found.reads <= eager.reads + 2 * steps
        assert found.calls <= 3 * eager.calls
        assert found.cancellations == 0
        np.testing.assert_allclose(found.result, eager.result, rtol=1e-9)
    assert lazy[19].calls <= 2.3 * lazy[9].calls, "planning costs more the longer the loop"
