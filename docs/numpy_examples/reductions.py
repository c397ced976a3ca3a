"""Examples of reductions, statistics and comparisons of whole arrays."""

from __future__ import annotations

_OVER = ("np.{}(x)", "np.{}(T, axis=0)", "np.{}(T, axis=1, keepdims=True)")
_OVER_NAN = ("np.{}(z)", "np.{}(T, axis=0)", "np.{}(T, axis=1)")
_ALONG = ("np.{}(x)", "np.{}(T, axis=0)", "np.{}(T, axis=1)")
_BY_AXIS = "sum prod min max amin amax mean var std ptp argmin argmax".split()
_TRUTHS = "any all count_nonzero".split()
_NAN = "nansum nanprod nanmin nanmax nanmean nanvar nanstd nanargmin nanargmax".split()

EXAMPLES: dict[str, tuple[str, ...]] = {
    **{f"np.{name}": tuple(one.format(name) for one in _OVER) for name in _BY_AXIS},
    **{f"np.{name}": (f"np.{name}(m)", f"np.{name}(T > 0, axis=1)") for name in _TRUTHS},
    **{f"np.{name}": tuple(one.format(name) for one in _OVER_NAN) for name in _NAN},
    "np.median": tuple(one.format("median") for one in _ALONG),
    "np.nanmedian": tuple(one.format("nanmedian") for one in _OVER_NAN),
    "np.quantile": (
        "np.quantile(x, 0.3)",
        "np.quantile(x, v**2 / 9)",
        "np.quantile(T, 0.3, axis=0)",
    ),
    "np.percentile": ("np.percentile(x, [10, 90])", "np.percentile(T, 30, axis=1)"),
    "np.nanquantile": ("np.nanquantile(z, 0.3)",),
    "np.nanpercentile": ("np.nanpercentile(z, 30)",),
    "np.average": ("np.average(x)", "np.average(x, weights=p)", "np.average(T, axis=0, weights=p)"),
    "np.cov": ("np.cov(T, rowvar=False)", "np.cov(x, y)"),
    "np.corrcoef": ("np.corrcoef(T, rowvar=False)", "np.corrcoef(x, y)"),
    "np.allclose": ("np.allclose(x, y)",),
    "np.array_equal": ("np.array_equal(x, x + 0)",),
    "np.array_equiv": ("np.array_equiv(T, v)",),
    "np.cumsum": ("np.cumsum(x)", "np.cumsum(T, axis=1)", "np.cumsum(T, axis=0)", "np.cumsum(T)"),
    "np.cumprod": ("np.cumprod(p)", "np.cumprod(T, axis=1)", "np.cumprod(T, axis=0)"),
    "np.cumulative_sum": ("np.cumulative_sum(x)", "np.cumulative_sum(T, axis=1)"),
    "np.cumulative_prod": ("np.cumulative_prod(u)", "np.cumulative_prod(T, axis=1)"),
    "np.nancumsum": ("np.nancumsum(z)", "np.nancumsum(T, axis=1)"),
    "np.nancumprod": ("np.nancumprod(z)", "np.nancumprod(T, axis=1)"),
    "np.diff": ("np.diff(x)", "np.diff(x, 2)", "np.diff(T, axis=0)", "np.diff(x, prepend=0.0)"),
    "np.ediff1d": ("np.ediff1d(x)", "np.ediff1d(x, to_begin=0.0)"),
    "np.gradient": ("np.gradient(x)", "np.gradient(x, 0.5)", "np.gradient(T, axis=1)"),
    "np.trapezoid": ("np.trapezoid(x)", "np.trapezoid(x, e)", "np.trapezoid(T, axis=0)"),
    "np.convolve": ("np.convolve(x, v)", "np.convolve(x, v, mode='same')", "np.convolve(x, y)"),
    "np.correlate": ("np.correlate(x, v)", "np.correlate(x, v, mode='full')"),
    "np.interp": ("np.interp(x, e, y)", "np.interp(x, [-1.0, 0.0, 1.0], [0.0, 2.0, 1.0])"),
    "np.apply_along_axis": ("np.apply_along_axis(np.sum, 1, T)",),
    "np.apply_over_axes": (
        "np.apply_over_axes(np.sum, T, [0])",
        "np.apply_over_axes(np.sum, T, 1)",
    ),
}
