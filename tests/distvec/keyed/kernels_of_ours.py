"""Kernels of users, as plain Python runs them, too."""

from __future__ import annotations

import math

import distvec as dv


@dv.kernel(returns={"norm": "float64"})
def clip(w, most, norm):
    """Rows of at most this norm; the norms that they had."""
    for i in range(len(w)):
        total = 0
        for j in range(w.shape[1]):
            total += w[i, j] * w[i, j]
        norm[i] = math.sqrt(total)
        if norm[i] > most:
            for j in range(w.shape[1]):
                w[i, j] *= most / norm[i]


@dv.kernel(returns={"last": "int64[3]"})
def steps_to_one(counts, start, keys, odd_only, last):
    """Loops, conditions, integers and booleans."""
    for i in range(len(counts) - 1, -1, -1):
        n = start[i]
        steps = 0
        seen = False
        while True:
            if n <= 1:
                break
            steps += 1
            if n % 2 == 0:
                n = n // 2
                continue
            n = 3 * n + 1
            seen = True
        if odd_only and not seen:
            steps = -steps
        else:
            pass
        counts[i] += steps
        last[i, 0] = min(n, steps, 5)
        last[i, 1] = abs(-steps) ^ 3
        last[i, 2] = int(math.log1p(float(abs(steps)))) + (keys[i] & 7)


@dv.kernel
def forever(w):
    """Never ends."""
    w[0] = 5.0
    while True:
        w[0] += 1


@dv.kernel
def beyond(w, k):
    """Writes to a place that may not be."""
    w[0] = 7.0
    w[k] = 1.0


@dv.kernel
def no_step(w, step):
    """A range whose step may be 0."""
    w[0] = 7.0
    for i in range(0, 10, step):
        w[0] += i


@dv.kernel(returns={"whole": "int64[3]", "real": "float64[5]"})
def arithmetic(a, b, x, y, whole, real):
    """What machines do not agree on."""
    for i in range(len(a)):
        whole[i, 0] = a[i] // b[i]
        whole[i, 1] = a[i] % b[i]
        whole[i, 2] = a[i] * b[i] + a[i] - b[i]
        real[i, 0] = x[i] / y[i]
        real[i, 1] = min(x[i], y[i])
        real[i, 2] = max(x[i], y[i])
        real[i, 3] = math.sqrt(x[i])
        real[i, 4] = abs(x[i])
