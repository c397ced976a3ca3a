"""Algorithms as users type them from textbooks: the same lines run on NumPy's arrays and on ours.

Each function takes its data and a number of steps, and returns what it computed. The first seven
pass each inner product through ``scalar``, so that a test can compare ``float`` with no reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Scalar = Callable[[Any], Any]


def lazy(value: Any) -> Any:
    """The value as it is: a textbook's loop does not convert its inner products."""
    return value


# Krylov methods, with a diagonal matrix


def conjugate_gradients(d: Any, b: Any, steps: int, scalar: Scalar = lazy) -> Any:
    """Solve ``d * x = b``."""
    x, r = 0 * b, 1.0 * b
    p, rr = r, scalar(r @ r)
    for _ in range(steps):
        q = d * p
        step = rr / (p @ q)
        x, r = x + step * p, r - step * q
        new = scalar(r @ r)
        p, rr = r + new / rr * p, new
    return x


def conjugate_residuals(d: Any, b: Any, steps: int, scalar: Scalar = lazy) -> Any:
    """Solve ``d * x = b`` with residuals orthogonal in the matrix."""
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


def bicgstab(d: Any, b: Any, steps: int, scalar: Scalar = lazy) -> Any:
    """Solve ``d * x = b`` as if the matrix was not symmetric."""
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


def chebyshev(d: Any, b: Any, steps: int, scalar: Scalar = lazy) -> Any:
    """Solve ``d * x = b`` with the bounds 1 and 2 of the spectrum, without inner products."""
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


def lanczos(d: Any, b: Any, steps: int, scalar: Scalar = lazy) -> Any:
    """The last vector of an orthogonal basis."""
    v, before, beta = b / scalar(np.sqrt(b @ b)), 0 * b, 0.0
    for _ in range(steps):
        u = d * v - beta * before
        u = u - scalar(u @ v) * v
        beta = scalar(np.sqrt(u @ u))
        before, v = v, u / beta
    return v


def lsqr(d: Any, b: Any, steps: int, scalar: Scalar = lazy) -> Any:
    """The least-squares solution of ``d * x = b`` by bidiagonalization."""
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


def gmres(d: Any, b: Any, steps: int, scalar: Scalar = lazy) -> Any:
    """Solve ``d * x = b`` by GMRES(10), a restart for each ten steps begun."""
    x = 0 * b
    for _ in range(-(-steps // 10)):
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
    return x


# Smooth minimization


def barzilai_borwein(d: Any, b: Any, steps: int) -> Any:
    """Minimize ``d * x * x / 2 - b * x`` with a step size from the last two gradients."""
    x, gradient, step = 0 * b, -b, 0.5
    for _ in range(steps):
        new = x - step * gradient
        new_gradient = d * new - b
        s, y = new - x, new_gradient - gradient
        step = (s @ s) / (s @ y)
        x, gradient = new, new_gradient
    return x


def nesterov(d: Any, b: Any, steps: int) -> Any:
    """Minimize the sum of ``log(cosh(d * x - b))`` by accelerated gradients."""
    x, y, t = 0 * b, 0 * b, 1.0
    for _ in range(steps):
        new = y - 0.25 * d * np.tanh(d * y - b)
        t_new = (1 + np.sqrt(1 + 4 * t * t)) / 2
        y = new + (t - 1) / t_new * (new - x)
        x, t = new, t_new
    return x


def newton_cg(d: Any, b: Any, steps: int) -> Any:
    """Minimize the sum of ``log(cosh(d * x - b))`` and ``x**2 / 2``."""
    x = 0 * b
    for _ in range(steps):
        tanh = np.tanh(d * x - b)
        gradient, curvature = d * tanh + x, d * d * (1 - tanh**2) + 1
        step, r = 0 * b, -gradient
        p, rr = r, r @ r
        tolerance = 0.01 * rr
        for _ in range(5):
            if rr < tolerance:
                break
            hp = curvature * p
            alpha = rr / (p @ hp)
            step, r = step + alpha * p, r - alpha * hp
            new = r @ r
            p, rr = r + new / rr * p, new
        x = x + step
    return x


def anderson(d: Any, b: Any, steps: int) -> Any:
    """The fixed point of ``x = tanh(b - d * x / 4)``, from the last five residuals."""
    x = 0 * b
    xs, fs = [], []
    for _ in range(steps):
        f = np.tanh(b - 0.25 * d * x) - x
        xs, fs = [*xs[-4:], x], [*fs[-4:], f]
        if len(fs) == 1:
            x = x + f
            continue
        changes = np.column_stack([new - old for new, old in zip(fs[1:], fs, strict=False)])
        moves = np.column_stack([new - old for new, old in zip(xs[1:], xs, strict=False)])
        weights = np.linalg.solve(changes.T @ changes, changes.T @ f)
        x = x + f - (moves + changes) @ weights
    return x


def adam(d: Any, b: Any, steps: int) -> Any:
    """Minimize the sum of ``log(cosh(d * x - b))``, in place."""
    x, m, v = 0 * b, 0 * b, 0 * b
    for t in range(1, steps + 1):
        gradient = d * np.tanh(d * x - b)
        m += 0.1 * (gradient - m)
        v += 0.001 * (gradient**2 - v)
        x -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return x


# Proximal methods


def fista(d: Any, b: Any, steps: int) -> Any:
    """Minimize ``|d * x - b|**2 / 2 + 0.1 |x|_1``."""
    x, y, t = 0 * b, 0 * b, 1.0
    for _ in range(steps):
        z = y - 0.25 * d * (d * y - b)
        new = np.sign(z) * np.maximum(np.abs(z) - 0.025, 0)
        t_new = (1 + np.sqrt(1 + 4 * t * t)) / 2
        y = new + (t - 1) / t_new * (new - x)
        x, t = new, t_new
    return x


def admm(A: Any, b: Any, steps: int) -> Any:
    """Minimize ``|A @ x - b|_1``."""
    z, u = 0 * b, 0 * b
    gram = A.T @ A
    for _ in range(steps):
        x = np.linalg.solve(gram, A.T @ (b + z - u))
        e = A @ x - b
        v = e + u
        z = np.maximum(v - 1, 0) - np.maximum(-v - 1, 0)
        u = u + e - z
    return x, z


def chambolle_pock(b: Any, steps: int) -> Any:
    """Denoise ``b`` by the total variation."""
    x, x_bar, p = b, b, 0 * b[1:]
    for _ in range(steps):
        p = np.clip(p + 0.5 * np.diff(x_bar), -0.5, 0.5)
        new = (x + 0.5 * np.diff(p, prepend=0, append=0) + 0.5 * b) / 1.5
        x, x_bar = new, 2 * new - x
    return x


def coordinate_descent(A: Any, b: Any, steps: int) -> Any:
    """The lasso, one coordinate after another: a step is a pass over all coordinates."""
    x, r = np.zeros(A.shape[1]), 1.0 * b
    squares = (A * A).sum(axis=0)
    for _ in range(steps):
        for j in range(A.shape[1]):
            rho = A[:, j] @ r + squares[j] * x[j]
            new = np.sign(rho) * max(abs(rho) - 10, 0) / squares[j]
            r = r - (new - x[j]) * A[:, j]
            x[j] = new
    return x, r


# Tables: statistics and linear algebra


def k_means(X: Any, steps: int) -> Any:
    """Five centres by Lloyd's algorithm."""
    centres = X[:5]
    for _ in range(steps):
        distances = (X**2).sum(axis=1)[:, None] - 2 * X @ centres.T + (centres**2).sum(axis=1)
        nearest = distances.argmin(axis=1)
        centres = np.array([X[nearest == k].mean(axis=0) for k in range(5)])
    return centres


def nmf(V: Any, W: Any, H: Any, steps: int) -> Any:
    """Factors of a non-negative table by multiplicative updates."""
    for _ in range(steps):
        H = H * (W.T @ V) / (W.T @ W @ H + 1e-9)
        W = W * (V @ H.T) / (W @ (H @ H.T) + 1e-9)
    return W, H


def gaussian_mixture(x: Any, steps: int) -> Any:
    """Weights, means and variances of three components."""
    weight, mean, variance = np.full(3, 1 / 3), np.array([-2.0, 0.0, 2.0]), np.ones(3)
    for _ in range(steps):
        squares = (x[:, None] - mean) ** 2
        density = weight * np.exp(-0.5 * squares / variance) / np.sqrt(2 * np.pi * variance)
        share = density / density.sum(axis=1, keepdims=True)
        total = share.sum(axis=0)
        weight, mean = total / len(x), x @ share / total
        variance = (share * (x[:, None] - mean) ** 2).sum(axis=0) / total
    return weight, mean, variance


def multinomial_mixture(X: Any, steps: int) -> Any:
    """Probabilities of three topics in rows of counts."""
    topics = X[:3] + 1.0
    topics = topics / topics.sum(axis=1)[:, None]
    weight = np.full(3, 1 / 3)
    for _ in range(steps):
        logs = X @ np.log(topics).T + np.log(weight)
        share = np.exp(logs - logs.max(axis=1, keepdims=True))
        share = share / share.sum(axis=1, keepdims=True)
        topics = share.T @ X + 1e-3
        topics = topics / topics.sum(axis=1, keepdims=True)
        weight = share.mean(axis=0)
    return topics, weight


def newton_logistic(A: Any, y: Any, steps: int) -> Any:
    """Logistic regression by Newton's method."""
    w = np.zeros(A.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(A @ w)))
        gradient = A.T @ (p - y) + w
        hessian = A.T @ ((p * (1 - p))[:, None] * A) + np.eye(A.shape[1])
        w -= np.linalg.solve(hessian, gradient)
    return w


def svrg(A: Any, y: Any, steps: int) -> Any:
    """Logistic regression by mini-batches; a step is an epoch of ten."""
    rng = np.random.default_rng(1)
    w = np.zeros(A.shape[1])

    def gradient(rows: Any, labels: Any, w: Any) -> Any:
        return rows.T @ (1 / (1 + np.exp(-(rows @ w))) - labels) / len(labels)

    for _ in range(steps):
        anchor, full = w, gradient(A, y, w)
        for _ in range(10):
            batch = rng.integers(0, len(y), 64)
            rows, labels = A[batch], y[batch]
            w = w - 0.5 * (gradient(rows, labels, w) - gradient(rows, labels, anchor) + full)
    return w


def pca(X: Any, steps: int) -> Any:
    """Scores on the first three principal components."""
    for _ in range(steps):
        centred = X - X.mean(axis=0)
        values, vectors = np.linalg.eigh(centred.T @ centred / (len(X) - 1))
        scores = centred @ vectors[:, ::-1][:, :3]
    return np.abs(scores), values


def randomized_svd(A: Any, test: Any, steps: int) -> Any:
    """The largest singular values by subspace iteration."""
    q, _ = np.linalg.qr(A @ test)
    for _ in range(steps):
        q, _ = np.linalg.qr(A @ (A.T @ q))
    u, s, _ = np.linalg.svd(q.T @ A, full_matrices=False)
    return np.abs(q @ u), s


def power_iteration(v: Any, steps: int) -> Any:
    """The largest eigenvector of the matrix of second differences."""
    for _ in range(steps):
        w = 2 * v
        w[1:] -= v[:-1]
        w[:-1] -= v[1:]
        v = w / np.linalg.norm(w)
    return v


def sinkhorn(C: Any, a: Any, b: Any, steps: int) -> Any:
    """Scalings of the entropic transport plan between ``a`` and ``b``."""
    K = np.exp(-C / 0.5)
    v = np.ones(len(b))
    for _ in range(steps):
        u = a / (K @ v)
        v = b / (K.T @ u)
    return u, v


def gaussian_process(x: Any, y: Any, steps: int) -> Any:
    """Weights of a Gaussian process by conjugate gradients on its dense matrix."""
    K = np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)
    weights, r = 0 * y, 1.0 * y
    p, rr = r, r @ r
    for _ in range(steps):
        q = K @ p + p
        step = rr / (p @ q)
        weights, r = weights + step * p, r - step * q
        new = r @ r
        p, rr = r + new / rr * p, new
    return weights


# Graphs and trees


def pagerank(source: Any, target: Any, degree: Any, steps: int) -> Any:
    """Ranks of the nodes of a graph that is given by its edges."""
    n = len(degree)
    rank = degree * 0.0 + 1 / n
    for _ in range(steps):
        share = rank / degree
        rank = 0.15 / n + 0.85 * np.bincount(target, weights=share[source], minlength=n)
    return rank


def label_propagation(source: Any, target: Any, degree: Any, seeds: Any, steps: int) -> Any:
    """Scores of nodes from their neighbours; ``seeds`` is 1 or -1 where known, else 0."""
    known, score = seeds != 0, seeds
    for _ in range(steps):
        mean = np.bincount(target, weights=score[source], minlength=len(seeds)) / degree
        score = np.where(known, seeds, mean)
    return score


def boosted_stumps(X: Any, y: Any, steps: int) -> Any:
    """Predictions of stumps that are fitted to residuals by histograms of 32 bins."""
    prediction = 0 * y
    for _ in range(steps):
        residual = y - prediction
        best = -1.0
        for j in range(X.shape[1]):
            total = np.cumsum(np.bincount(X[:, j], weights=residual, minlength=32))
            count = np.cumsum(np.bincount(X[:, j], minlength=32))
            left, right = count[:-1], count[-1] - count[:-1]
            gain = total[:-1] ** 2 / (left + 1) + (total[-1] - total[:-1]) ** 2 / (right + 1)
            cut = int(np.argmax(gain))
            if gain[cut] > best:
                best, feature, split = gain[cut], j, cut
                below = total[cut] / (left[cut] + 1)
                above = (total[-1] - total[cut]) / (right[cut] + 1)
        prediction = prediction + 0.3 * np.where(X[:, feature] <= split, below, above)
    return prediction


LOOPS = [conjugate_gradients, conjugate_residuals, bicgstab, chebyshev, lanczos, lsqr, gmres]


class Algorithm(NamedTuple):
    """A function, and its data: as many elements as asked for in the largest array."""

    run: Callable[..., Any]
    data: Callable[[int], Mapping[str, np.ndarray[Any, Any]]]
    on_client: tuple[str, ...] = ()
    """Arrays that stay NumPy's beside those on the servers."""
    steps: int = 1
    """The fewest that a run takes."""


def _diagonal(n: int) -> dict[str, Any]:
    return {"d": np.linspace(1, 2, n), "b": np.cos(np.arange(float(n)))}


def _rows(n: int, columns: int = 10) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((n // columns, columns))
    return {"A": A, "y": A @ np.linspace(-1, 1, columns) + rng.standard_normal(len(A))}


def _regression(n: int) -> dict[str, Any]:
    rows = _rows(n)
    return {"A": rows["A"], "b": rows["y"]}


def _classes(n: int) -> dict[str, Any]:
    rows = _rows(n)
    return {"A": rows["A"], "y": (rows["y"] > 0).astype(float)}


def _clusters(n: int) -> dict[str, Any]:
    rows = _rows(n)["A"]
    return {"X": rows + 3 * (np.arange(len(rows)) % 5)[:, None]}


def _graph(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    nodes = max(n // 10, 1)
    source, target = rng.integers(0, nodes, (2, n))
    degree = np.maximum(np.bincount(source, minlength=nodes), 1).astype(float)
    return {"source": source, "target": target, "degree": degree}


def _seeds(n: int) -> dict[str, Any]:
    graph = _graph(n)
    seeds = np.random.default_rng(2).integers(-20, 21, len(graph["degree"]))
    return {**graph, "seeds": np.where(abs(seeds) > 19, np.sign(seeds), 0).astype(float)}


def _factors(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "V": rng.random((n // 20, 20)),
        "W": rng.random((n // 20, 4)),
        "H": rng.random((4, 20)),
    }


def _counts(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {"X": rng.poisson(1 + np.arange(n // 20)[:, None] % 3 * np.arange(20) % 7).astype(float)}


def _bins(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    X = rng.integers(0, 32, (n // 10, 10))
    return {"X": X, "y": np.sin(X[:, 3] / 5.0) + 0.1 * rng.standard_normal(len(X))}


def _transport(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "C": rng.random((n // 20, 20)),
        "a": np.full(n // 20, 1 / (n // 20)),
        "b": np.full(20, 1 / 20),
    }


def _points(n: int) -> dict[str, Any]:
    x = np.linspace(0, 10, max(int(n**0.5), 2))
    return {"x": x, "y": np.sin(x)}


def _noisy(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {"b": np.sign(np.sin(np.arange(n) / 50)) + 0.2 * rng.standard_normal(n)}


ALGORITHMS = {
    algorithm.run.__name__.replace("_", " "): algorithm
    for algorithm in (
        *(Algorithm(loop, _diagonal, steps=10 if loop is gmres else 1) for loop in LOOPS),
        Algorithm(barzilai_borwein, _diagonal),
        Algorithm(nesterov, _diagonal),
        Algorithm(newton_cg, _diagonal),
        Algorithm(anderson, _diagonal),
        Algorithm(adam, _diagonal),
        Algorithm(fista, _diagonal),
        Algorithm(admm, _regression),
        Algorithm(chambolle_pock, _noisy),
        Algorithm(coordinate_descent, _regression),
        Algorithm(k_means, _clusters),
        Algorithm(nmf, _factors, ("H",)),
        Algorithm(gaussian_mixture, lambda n: {"x": 2 * _noisy(n)["b"]}),
        Algorithm(multinomial_mixture, _counts),
        Algorithm(newton_logistic, _classes),
        Algorithm(svrg, _classes),
        Algorithm(pca, lambda n: {"X": _rows(n)["A"] * np.arange(1, 11)}),
        Algorithm(
            randomized_svd,
            lambda n: {"A": _rows(n, 20)["A"] * np.arange(1, 21), "test": np.eye(20, 5)},
            ("test",),
        ),
        Algorithm(power_iteration, lambda n: {"v": _noisy(n)["b"]}),
        Algorithm(sinkhorn, _transport, ("b",)),
        Algorithm(gaussian_process, _points),
        Algorithm(pagerank, _graph),
        Algorithm(label_propagation, _seeds),
        Algorithm(boosted_stumps, _bins),
    )
}
