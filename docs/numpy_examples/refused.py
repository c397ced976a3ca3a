"""Unsupported calls by kind, with reasons and examples for docs/reference/numpy.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REFUSED: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "More than two axes": (
            (
                "The rows of a table are distributed over the servers, and each row is "
                "contiguous. There is no third axis."
            ),
            ("np.stack([T, U])", "x[:, None, None]", "np.add.outer(T, x)"),
        ),
        "Other dtypes": (
            (
                "Kernels support booleans, integers of 1 to 8 bytes and floats of 2 to 8 "
                "bytes, in native byte order."
            ),
            ("x.astype(complex)", "np.array(['a'], like=x)", "x.astype('>f8')"),
        ),
        "Memory": (
            (
                "The elements are in the memory of other processes, and evaluation can move "
                "an array."
            ),
            ("x.strides", "x.view(np.int64)", "x.tobytes()"),
        ),
        "Assignments into slices": (
            (
                "A slice is a copy, not a view, so an assignment into it would be lost. "
                "`x[1:3] = y` and `x[1:3] += y` change `x`."
            ),
            ("y = x[1:3]; y[0] = 1.0; y", "np.fill_diagonal(T[:, 1:], 0.0)"),
        ),
        "Python functions applied to each element": (
            "Servers run built-in operations, not Python code.",
            ("np.vectorize(abs)(x)", "np.apply_along_axis(np.sum, 1, T)"),
        ),
        "Small arguments from the servers": (
            (
                "If NumPy needs the values of an argument on the client, such as the edges of "
                "bins, the transfer must be explicit."
            ),
            ("np.histogram(x, e)", "np.add.reduceat(x, o)", "np.delete(T, i[:2] % 4, axis=1)"),
        ),
        "Steps that depend on the step before": (
            ("Servers work in parallel, so an accumulation needs an associative operation."),
            ("np.subtract.accumulate(x)", "np.subtract.reduce(x)"),
        ),
        "Elements that would stay undefined": (
            "NumPy leaves these elements uninitialized.",
            ("np.add(x, y, where=m)",),
        ),
        "Linear algebra of large square tables": (
            ("The client solves and inverts matrices, so they must be small, such as `T.T @ T`."),
            ("np.linalg.cholesky(np.eye(2100, like=x))",),
        ),
        "Files": (
            "NumPy writes from the client's memory. With `distvec.save`, the servers write.",
            ("np.save(file, x)",),
        ),
    }
)
