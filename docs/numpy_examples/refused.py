"""What servers refuse, by kind: why, and examples whose errors docs/reference/numpy.md shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REFUSED: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "More than two axes": (
            (
                "The rows of a table are shared out to the servers, and a row is one piece of "
                "memory: there is no third axis."
            ),
            ("np.stack([T, U])", "x[:, None, None]", "np.add.outer(T, x)"),
        ),
        "Other dtypes": (
            (
                "Kernels compute with booleans, integers of 1 to 8 bytes and floats of 2 to 8, "
                "in the order of bytes of the machine."
            ),
            ("x.astype(complex)", "np.array(['a'], like=x)", "x.astype('>f8')"),
        ),
        "Memory": (
            (
                "The elements are in the memory of other processes, and a program may put an "
                "array elsewhere."
            ),
            ("x.strides", "x.view(np.int64)", "x.tobytes()"),
        ),
        "Assignments into slices": (
            (
                "A slice is an array of its own and no view, so what is written into it would "
                "be lost. `x[1:3] = y` and `x[1:3] += y` change `x`."
            ),
            ("y = x[1:3]; y[0] = 1.0; y", "np.fill_diagonal(T[:, 1:], 0.0)"),
        ),
        "Functions of the client for each element": (
            "Servers run programs made of the operations that they know, and no Python of yours.",
            ("np.vectorize(abs)(x)", "np.apply_along_axis(np.sum, 1, T)"),
        ),
        "Arrays of the client as operands": (
            (
                "What is as long as an array of the servers is put there once, and not with "
                "each program that uses it. A row of a table travels."
            ),
            ("x + [1.0] * 2000", "T * np.ones((2000, 4))"),
        ),
        "Small arguments from the servers": (
            (
                "Where NumPy's function needs the values of an argument, as where bins begin, "
                "they would come to the client without a word."
            ),
            ("np.histogram(x, e)", "np.add.reduceat(x, o)", "np.delete(T, i[:2] % 4, axis=1)"),
        ),
        "Steps that depend on the step before": (
            (
                "Servers work at the same time, so a running result needs an operation that can "
                "be applied to blocks in any grouping."
            ),
            ("np.subtract.accumulate(x)", "np.subtract.reduce(x)"),
        ),
        "Elements that would stay undefined": (
            "NumPy leaves in them what was in memory.",
            ("np.add(x, y, where=m)",),
        ),
        "Linear algebra of large square tables": (
            (
                "Solving and inverting is done by the client, for small ones: those of columns, "
                "as `T.T @ T`."
            ),
            ("np.linalg.cholesky(np.eye(2100, like=x))",),
        ),
        "Files": (
            "NumPy writes what the client has. `distvec.save` lets the servers write.",
            ("np.save(file, x)",),
        ),
    }
)
