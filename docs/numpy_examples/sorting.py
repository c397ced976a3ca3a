"""Examples of sorts, searches, sets, counts, and of indices as arrays."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "np.sort": ("np.sort(x)", "np.sort(T, axis=1)", "np.sort(T, axis=0)"),
    "np.argsort": ("np.argsort(x)", "np.argsort(i, stable=True)", "np.argsort(T, axis=1)"),
    "np.lexsort": ("np.lexsort((x, i))",),
    "np.partition": (
        "np.sort(np.partition(x, 3)[:3])",
        "np.sort(np.partition(T, 1, axis=1)[:, :1])",
    ),
    "np.argpartition": ("np.sort(x[np.argpartition(x, 3)[:3]])",),
    "np.searchsorted": ("np.searchsorted(e, x)", "np.searchsorted(e, [0.0, 1.0], side='right')"),
    "np.digitize": ("np.digitize(x, [-1.0, 0.0, 1.0])", "np.digitize(x, e)"),
    "np.unique": (
        "np.unique(i)",
        "np.unique(i, return_counts=True)",
        "np.unique(i, return_inverse=True)",
        "np.unique(x, return_index=True)",
        "np.unique(T, axis=0)",
    ),
    "np.unique_values": ("np.sort(np.unique_values(i))",),
    "np.unique_counts": ("np.unique_counts(i)",),
    "np.unique_inverse": ("np.unique_inverse(i)",),
    "np.unique_all": ("np.unique_all(i)",),
    "np.isin": ("np.isin(i, [2, 3])", "np.isin(i, j[:5])"),
    "np.intersect1d": ("np.intersect1d(i, j + 5)",),
    "np.union1d": ("np.union1d(i, j + 5)",),
    "np.setdiff1d": ("np.setdiff1d(i, j[:2])",),
    "np.setxor1d": ("np.setxor1d(i, j + 5)",),
    "np.bincount": ("np.bincount(i)", "np.bincount(i, weights=x, minlength=20)"),
    "np.histogram": ("np.histogram(x)", "np.histogram(x, bins=[-1.0, 0.0, 1.0], weights=p)"),
    "np.histogram_bin_edges": ("np.histogram_bin_edges(x, bins=5)",),
    "np.histogram2d": (
        "np.histogram2d(x, y, bins=4)",
        "np.histogram2d(x, y, [[-1.0, 0.0, 1.0], 3], weights=p)",
    ),
    "np.histogramdd": ("np.histogramdd(T[:, :2], bins=4)", "np.histogramdd(T, bins=2)"),
    "np.nonzero": ("np.nonzero(m)", "np.nonzero(T > 0)"),
    "np.flatnonzero": ("np.flatnonzero(m)", "np.flatnonzero(T > 0)"),
    "np.argwhere": ("np.argwhere(m)", "np.argwhere(T > 0)"),
    "np.extract": ("np.extract(m, x)",),
    "np.compress": ("np.compress(m, x)", "np.compress([True, False, True], T, axis=1)"),
    "np.trim_zeros": ("np.trim_zeros(np.where(m, x, 0.0))",),
    "np.take": ("np.take(x, o)", "np.take(T, [3, 0], axis=1)", "np.take(T, [9, 0], axis=0)"),
    "np.take_along_axis": (
        "np.take_along_axis(x, o, axis=0)",
        "np.take_along_axis(T, np.argsort(T, axis=1), axis=1)",
    ),
    "np.ix_": ("np.ix_(i, j)", "T[np.ix_([5, 9], [0, 3])]"),
    "np.ravel_multi_index": ("np.ravel_multi_index((i, j), (10, 10))",),
    "np.unravel_index": ("np.unravel_index(o, (40, 50))",),
}
