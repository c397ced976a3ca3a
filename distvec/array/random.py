"""Random arrays: seed and index alone decide each element, for any number of servers."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.array import DistArray
from distvec.array.collectives.search import look_up
from distvec.array.core.handle import SessionBase, check_not_slice, make
from distvec.array.core.keywords import store
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import iota, length_of, reshape, shape_of
from distvec.array.indexing.getitem import get_item
from distvec.graph.build import check_dtype
from distvec.graph.host_eval import MOST_ELEMENTS
from ps_backend.program import philox

_LEAST = 2.0**-54
"""Instead of 0, of which there is no logarithm."""

_NEAR_ONE = 1e-8
"""So far from 1 may probabilities sum up: what NumPy allows."""


Size = int | tuple[int, ...] | None
Parameter = Arithmetic | npt.ArrayLike
"""Of a distribution: a number, or one for each element."""
D = TypeVar("D", bound=Callable[..., Any])


def _or_size(draw: D) -> D:
    """Decorate a method: a single positional argument is its size, as in ``normal(1000)``."""

    @wraps(draw)
    def drawn(self: Random, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and "size" not in kwargs and not hasattr(args[0], "dtype"):
            return draw(self, size=args[0], **kwargs)
        return draw(self, *args, **kwargs)

    return drawn  # type: ignore[return-value]


class Random:
    """Draw random arrays on the servers, like ``numpy.random.Generator``.

    ``session.random`` is one. Numbers depend only on the seed and the index of the element
    (Philox4x32-10), so they are the same for any number of servers. NumPy draws other numbers from
    the same seed.

    Parameters
    ----------
    session : Session
        Session of the new arrays.

    Notes
    -----
    All methods are lazy unless stated otherwise. Numbers are drawn in the pass over memory that
    uses them, and they are drawn again, with the same values, in another pass.

    Without ``size`` a method draws one number, or as many as array parameters have. ``normal`` and
    ``uniform`` take a single positional argument as the size: ``ps.random.normal(1000)``.

    Examples
    --------
    >>> x = ps.random.normal(0.0, 2.0, size=1000, seed=7)
    >>> bool(abs(x.mean()) < 0.5)
    True
    """

    def __init__(self, session: SessionBase) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        missing = f"'Random' object has no attribute {name!r}"
        if name.startswith("_") or not hasattr(np.random.Generator, name):
            raise AttributeError(missing)
        raise AttributeError(
            f"{missing}: draw on the client and put it on the servers, "
            f"ps.array(numpy.random.default_rng(seed).{name}(...))"
        )

    def random(
        self,
        size: Size = None,
        dtype: npt.DTypeLike = np.float64,
        out: DistArray | None = None,
        *,
        seed: int | None = None,
    ) -> DistArray:
        """Draw numbers that are uniform in ``[0, 1)``.

        Parameters
        ----------
        size : int or tuple of int, optional
            Shape of the result. None (default) draws one number, or fills ``out``.
        dtype : dtype, default float64
            float64 (53 random bits) or float32 (24 random bits).
        out : DistArray, optional
            Array that receives the result.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        unit = self._drawn(_size_of(size, out), key_of(seed, 0))
        return store(out, _as_floats(unit, dtype), "random")  # type: ignore[no-any-return]

    @_or_size
    def uniform(
        self,
        low: Parameter = 0.0,
        high: Parameter = 1.0,
        size: Size = None,
        *,
        seed: int | None = None,
    ) -> DistArray:
        """Draw float64 numbers that are uniform in ``[low, high)``.

        Parameters
        ----------
        low : number or array_like, default 0.0
            Lower bounds.
        high : number or array_like, default 1.0
            Upper bounds.
        size : int or tuple of int, optional
            Shape of the result. Default: the broadcast shape of the parameters.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers, with 53 random bits each.

        Raises
        ------
        ValueError
            If ``high`` is less than ``low``, for numbers.
        """
        shape, least, most = self._given(size, low, high)
        unit = self._drawn(shape, key_of(seed, 0))
        if _is_number(least) and _is_number(most):
            if (least, most) == (0.0, 1.0):
                return unit  # type: ignore[no-any-return]
            if not most >= least:
                raise ValueError(f"uniform: high - low < 0, got low={least} and high={most}")
        return least + (most - least) * unit  # type: ignore[no-any-return]

    @_or_size
    def normal(
        self,
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
        size: Size = None,
        *,
        seed: int | None = None,
    ) -> DistArray:
        """Draw float64 numbers from normal distributions.

        Parameters
        ----------
        loc : number or array_like, default 0.0
            Means.
        scale : number or array_like, default 1.0
            Standard deviations, not negative.
        size : int or tuple of int, optional
            Shape of the result. Default: the broadcast shape of the parameters.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.

        References
        ----------
        G. E. P. Box and M. E. Muller (1958), the cosine branch.
        """
        _check_not_negative("normal", scale=scale)
        shape, centre, width = self._given(size, loc, scale)
        return centre + width * self._normal(shape, seed)  # type: ignore[no-any-return]

    def standard_normal(
        self,
        size: Size = None,
        dtype: npt.DTypeLike = np.float64,
        out: DistArray | None = None,
        *,
        seed: int | None = None,
    ) -> DistArray:
        """Draw numbers from the standard normal distribution.

        Parameters
        ----------
        size : int or tuple of int, optional
            Shape of the result. None (default) draws one number, or fills ``out``.
        dtype : dtype, default float64
            float64 or float32.
        out : DistArray, optional
            Array that receives the result.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        drawn = self._normal(_size_of(size, out), seed)
        return store(out, drawn.astype(_float_dtype(dtype)), "standard_normal")  # type: ignore[no-any-return]

    def _normal(self, shape: tuple[int, ...], seed: int | None) -> Any:
        seed = secrets.randbits(62) if seed is None else seed
        return self._drawn(shape, key_of(seed, 1), key_of(seed, 2), op="normal")

    def integers(
        self, low: int, high: int | None = None, size: Size = None, dtype: npt.DTypeLike = np.int64,
        endpoint: bool = False, *, seed: int | None = None,
    ) -> DistArray:  # fmt: skip
        """Draw integers that are uniform in ``[low, high)``.

        Parameters
        ----------
        low : int
            Smallest integer; the upper bound of ``[0, low)`` if ``high`` is not given.
        high : int, optional
            Upper bound, at most ``low + 2**53``.
        size : int or tuple of int, optional
            Shape of the result. None (default) draws one integer.
        dtype : dtype, default int64
            Integer dtype or bool.
        endpoint : bool, default False
            Whether ``high`` can be drawn, too.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn integers.

        Raises
        ------
        ValueError
            If the range is empty, too large, or exceeds the dtype.
        """
        if high is None:
            low, high = 0, low
        if np.ndim(low) or np.ndim(high):
            raise NotImplementedError(
                "integers: low and high must be numbers; for arrays write "
                "low + numpy.floor(ps.random.random(n) * (high - low)).astype('int64')"
            )
        low, high, kind = math.floor(low), math.floor(high) + bool(endpoint), check_dtype(dtype)
        _check_range(low, high, kind)
        steps: Any = self._drawn(_size_of(size), key_of(seed, 3)) * float(high - low)
        whole = steps.astype(np.int64)  # the floor, as no step is negative
        return (low + whole if low else whole).astype(kind)  # type: ignore[no-any-return]

    # --- by the inverse of the distribution function ------------------------------------------

    def _inverse(
        self, function: Callable[..., Any], size: Any, seed: int | None, *parameters: Any
    ) -> Any:
        """``function`` of numbers uniform in ``(0, 1)`` and of ``parameters``."""
        shape, *given = self._given(size, *parameters)
        unit = np.maximum(self._drawn(shape, key_of(seed, 7)), _LEAST)
        return function(unit, *given)

    def standard_exponential(
        self, size: Size = None, dtype: npt.DTypeLike = np.float64, method: str = "inv", out:
        DistArray | None = None, *, seed: int | None = None,
    ) -> DistArray:  # fmt: skip
        """Draw numbers from the exponential distribution of mean 1.

        Parameters
        ----------
        size : int or tuple of int, optional
            Shape of the result. None (default) draws one number, or fills ``out``.
        dtype : dtype, default float64
            float64 or float32.
        method : str, default "inv"
            Accepted for compatibility with NumPy; numbers are always drawn by inversion.
        out : DistArray, optional
            Array that receives the result.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        drawn = self.exponential(1.0, _size_of(size, out), seed=seed)
        return store(out, drawn.astype(_float_dtype(dtype)), "standard_exponential")

    def exponential(
        self, scale: Parameter = 1.0, size: Size = None, *, seed: int | None = None
    ) -> DistArray:
        """Draw numbers from exponential distributions.

        Parameters
        ----------
        scale : number or array_like, default 1.0
            Means, not negative.
        size : int or tuple of int, optional
            Shape of the result. Default: the shape of ``scale``.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_not_negative("exponential", scale=scale)
        return self._inverse(_exponential, size, seed, scale)  # type: ignore[no-any-return]

    def lognormal(
        self,
        mean: Parameter = 0.0,
        sigma: Parameter = 1.0,
        size: Size = None,
        *,
        seed: int | None = None,
    ) -> DistArray:
        """Draw numbers whose logarithm is normally distributed.

        Parameters
        ----------
        mean : number or array_like, default 0.0
            Means of the logarithms.
        sigma : number or array_like, default 1.0
            Standard deviations of the logarithms, not negative.
        size : int or tuple of int, optional
            Shape of the result. Default: the broadcast shape of the parameters.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_not_negative("lognormal", sigma=sigma)
        shape, centre, width = self._given(size, mean, sigma)
        return np.exp(centre + width * self._normal(shape, seed))  # type: ignore[no-any-return]

    def laplace(
        self,
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
        size: Size = None,
        *,
        seed: int | None = None,
    ) -> DistArray:
        """Draw numbers from Laplace (double exponential) distributions.

        Parameters
        ----------
        loc : number or array_like, default 0.0
            Means.
        scale : number or array_like, default 1.0
            Scales, not negative.
        size : int or tuple of int, optional
            Shape of the result. Default: the broadcast shape of the parameters.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_not_negative("laplace", scale=scale)
        return self._inverse(_laplace, size, seed, loc, scale)  # type: ignore[no-any-return]

    def logistic(
        self,
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
        size: Size = None,
        *,
        seed: int | None = None,
    ) -> DistArray:
        """Draw numbers from logistic distributions.

        Parameters
        ----------
        loc : number or array_like, default 0.0
            Means.
        scale : number or array_like, default 1.0
            Scales, not negative.
        size : int or tuple of int, optional
            Shape of the result. Default: the broadcast shape of the parameters.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_not_negative("logistic", scale=scale)
        return self._inverse(_logistic, size, seed, loc, scale)  # type: ignore[no-any-return]

    def gumbel(
        self,
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
        size: Size = None,
        *,
        seed: int | None = None,
    ) -> DistArray:
        """Draw numbers from Gumbel distributions.

        Parameters
        ----------
        loc : number or array_like, default 0.0
            Modes.
        scale : number or array_like, default 1.0
            Scales, not negative.
        size : int or tuple of int, optional
            Shape of the result. Default: the broadcast shape of the parameters.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_not_negative("gumbel", scale=scale)
        return self._inverse(_gumbel, size, seed, loc, scale)  # type: ignore[no-any-return]

    def rayleigh(
        self, scale: Parameter = 1.0, size: Size = None, *, seed: int | None = None
    ) -> DistArray:
        """Draw numbers from Rayleigh distributions.

        Parameters
        ----------
        scale : number or array_like, default 1.0
            Modes, not negative.
        size : int or tuple of int, optional
            Shape of the result. Default: the shape of ``scale``.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_not_negative("rayleigh", scale=scale)
        return self._inverse(_rayleigh, size, seed, scale)  # type: ignore[no-any-return]

    def weibull(self, a: Parameter, size: Size = None, *, seed: int | None = None) -> DistArray:
        """Draw numbers from Weibull distributions of scale 1.

        Parameters
        ----------
        a : number or array_like
            Shape parameters, not negative.
        size : int or tuple of int, optional
            Shape of the result. Default: the shape of ``a``.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_not_negative("weibull", a=a)
        return self._inverse(_weibull, size, seed, a)  # type: ignore[no-any-return]

    def pareto(self, a: Parameter, size: Size = None, *, seed: int | None = None) -> DistArray:
        """Draw numbers from Lomax (Pareto II) distributions.

        Parameters
        ----------
        a : number or array_like
            Shape parameters, greater than 0.
        size : int or tuple of int, optional
            Shape of the result. Default: the shape of ``a``.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_positive("pareto", a)
        return self._inverse(lambda u, a: np.expm1(_exponential(u, 1 / a)), size, seed, a)  # type: ignore[no-any-return]

    def power(self, a: Parameter, size: Size = None, *, seed: int | None = None) -> DistArray:
        """Draw numbers in ``[0, 1]`` of density ``a * x ** (a - 1)``.

        Parameters
        ----------
        a : number or array_like
            Exponents, greater than 0.
        size : int or tuple of int, optional
            Shape of the result. Default: the shape of ``a``.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        _check_positive("power", a)
        return self._inverse(lambda u, a: u ** (1 / a), size, seed, a)  # type: ignore[no-any-return]

    def standard_cauchy(self, size: Size = None, *, seed: int | None = None) -> DistArray:
        """Draw numbers from the standard Cauchy distribution.

        Parameters
        ----------
        size : int or tuple of int, optional
            Shape of the result. None (default) draws one number.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn numbers.
        """
        return self._inverse(lambda u: np.tan(math.pi * (u - 0.5)), size, seed)  # type: ignore[no-any-return]

    # --- in random order ----------------------------------------------------------------------

    def permutation(
        self, x: int | DistArray | npt.ArrayLike, axis: int = 0, *, seed: int | None = None
    ) -> DistArray:
        """Return integers, or the elements of an array, in random order.

        Parameters
        ----------
        x : int, DistArray or array_like
            A number stands for ``0, ..., x - 1``.
        axis : int, default 0
            Axis of an array to permute: its rows or its columns.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            int64 vector for a number, otherwise an array like ``x``.

        Notes
        -----
        Integers are computed in the pass that uses them. Rows of an array take two requests per
        server.
        """
        if isinstance(x, Arithmetic):
            return permuted_array(x, axis, partial(self.permutation, seed=seed))  # type: ignore[no-any-return]
        if np.ndim(x):
            given = self._session.array(x)
            return permuted_array(given, axis, partial(self.permutation, seed=seed))  # type: ignore[no-any-return]
        length = length_of(x, "permutation")
        return self._places(length, length, key_of(seed, 4))

    def shuffle(self, x: DistArray, axis: int = 0, *, seed: int | None = None) -> None:
        """Put the elements, rows or columns of an array in random order, in place.

        Parameters
        ----------
        x : DistArray
            Array that is rebound to its permuted value.
        axis : int, default 0
            Axis to permute.
        seed : int, optional
            Seed. None (default) takes a random one.

        Raises
        ------
        ValueError
            If ``x`` is a slice of another array: the other array would not change.
        """
        check_not_slice(x)
        with x.write_lock:
            x.assign(self.permutation(x, axis, seed=seed), "shuffle")

    def permuted(
        self,
        x: DistArray | npt.ArrayLike,
        *,
        axis: int | None = None,
        out: DistArray | None = None,
        seed: int | None = None,
    ) -> DistArray:
        """Return the elements in random order, each row or column in an order of its own.

        Parameters
        ----------
        x : DistArray or array_like
            Array to permute.
        axis : int, optional
            Axis along which each slice is permuted independently. None (default) permutes all
            elements together.
        out : DistArray, optional
            Array of the shape of ``x`` that receives the result.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The permuted array.

        Notes
        -----
        Along an axis random keys are sorted.
        """
        given = x if isinstance(x, Arithmetic) else self._session.array(x)
        if axis is None or given.ndim < 2:
            flat = self.permutation(reshape(given, (given.size,)), seed=seed)
            return store(out, reshape(flat, given.shape), "permuted")
        order: Any = np.argsort(self._unit(given.shape, key_of(seed, 5)), axis=axis)
        found: Any = np.take_along_axis(given, order, axis)
        return store(out, found, "permuted")  # type: ignore[no-any-return]

    def choice(
        self, a: int | DistArray | npt.ArrayLike, size: Size = None, replace: bool = True, p:
        DistArray | npt.ArrayLike | None = None, axis: int = 0, shuffle: bool = True, *, seed: int
        | None = None,
    ) -> DistArray:  # fmt: skip
        """Draw integers below a number, or elements of an array.

        Parameters
        ----------
        a : int, DistArray or array_like
            A number stands for ``0, ..., a - 1``; of an array, elements, rows or columns are drawn.
        size : int or tuple of int, optional
            Shape of the result. None (default) draws one.
        replace : bool, default True
            Whether an element can be drawn several times.
        p : DistArray or array_like, optional
            Vector of probabilities that sum to 1. Default: all are equal.
        axis : int, default 0
            Axis of an array to draw from.
        shuffle : bool, default True
            Accepted for compatibility with NumPy; the result is always in random order.
        seed : int, optional
            Seed. None (default) takes a random one.

        Returns
        -------
        DistArray
            The drawn integers or elements.

        Raises
        ------
        ValueError
            If ``p`` is not a vector of probabilities, or there are fewer elements than wanted
            without replacement.

        Notes
        -----
        ``p`` is validated with one request per server before it is used.
        """
        array: Any = a if isinstance(a, Arithmetic) or not np.ndim(a) else self._session.array(a)
        is_array = isinstance(array, Arithmetic)
        along = normalize_axis_index(axis, array.ndim) if is_array else 0
        count = array.shape[along] if is_array else length_of(array, "choice")
        shape = _size_of(size)
        wanted = math.prod(shape)
        if wanted and not count:
            raise ValueError("a must be a positive integer unless no samples are taken")
        if not replace and wanted > count:
            raise ValueError("Cannot take a larger sample than population when replace is False")
        if p is not None:
            places = self._weighted(count, wanted, replace, p, seed)
        elif replace and wanted:
            places = self.integers(0, count, wanted, seed=seed)
        else:
            places = self._places(wanted, count, key_of(seed, 4))
        if not is_array:
            return reshape(places, shape)  # type: ignore[no-any-return]
        if along:
            return np.take(array, reshape(places, shape), axis=along)  # type: ignore[no-any-return]
        found = get_item(array, places)
        return found if len(shape) == 1 else reshape(found, (*shape, *array.shape[1:]))  # type: ignore[no-any-return]

    def _weighted(self, count: int, wanted: int, replace: bool, p: Any, seed: int | None) -> Any:
        """Places drawn with the probabilities ``p``: where numbers in [0, 1) are in their sums.

        Without replacement those that happen first, each at a rate of ``p``. Source: Efraimidis and
        Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97
        (2006).
        """
        weights: Any = p if isinstance(p, Arithmetic) else self._session.array(p, np.float64)
        if weights.shape != (count,):
            raise ValueError("a and p must have same size")
        least, total = np.min(weights), np.sum(weights)
        likely: Any = np.count_nonzero(weights)
        self._session.evaluate(least, total, likely)
        if not float(least) >= 0:
            raise ValueError("Probabilities are not non-negative")
        if not abs(float(total) - 1.0) <= _NEAR_ONE:
            raise ValueError("Probabilities do not sum to 1. See Notes section of docstring.")
        if replace:
            sums: Any = np.cumsum(weights)
            highest = np.nextafter(sums[-1], 0.0)  # the product may round up to the sum
            drawn = np.minimum(self._unit((wanted,), key_of(seed, 3)) * sums[-1], highest)
            return np.searchsorted(sums, drawn, side="right")
        if int(likely) < wanted:
            raise ValueError("Fewer non-zero entries in p than size")
        times: Any = -np.log(1.0 - self._unit((count,), key_of(seed, 5))) / weights
        order: Any = np.argsort(times)
        return order[:wanted]

    def _places(self, count: int, length: int, key: int) -> DistArray:
        """The first ``count`` indices of a permutation of ``length``."""
        index = self._index((count,))
        operands = (np.int64(key), np.int64(length), index)
        return make(index, "permuted", operands, index.node.type)

    def _given(self, size: Any, *parameters: Any) -> list[Any]:
        """The shape, and the parameters of a distribution as they stand beside what is drawn."""
        if all(map(_is_number, parameters)):
            return [_size_of(size), *parameters]
        plain = [np.asarray(one) if isinstance(one, list | tuple) else one for one in parameters]
        shape = np.broadcast_shapes(*map(np.shape, plain)) if size is None else shape_of(size)
        if np.broadcast_shapes(shape, *map(np.shape, plain)) != shape:
            raise ValueError(f"the parameters do not broadcast to size={size}")
        return [
            shape,
            *(
                self._session.array(one)
                if isinstance(one, np.ndarray) and 0 < one.ndim == len(shape)
                else one
                for one in plain
            ),
        ]

    def _drawn(self, shape: tuple[int, ...], *keys: int, op: str = "uniform") -> Any:
        """Numbers uniform in ``[0, 1)``, or of another ``op``, of any shape: ``()`` for one."""
        drawn = self._unit(shape or (1,), *keys, op=op)
        return drawn if shape else reshape(drawn, ())

    def _unit(self, shape: tuple[int, ...], *keys: int, op: str = "uniform") -> Any:
        index = self._index(shape)
        type = index.node.type.of(np.dtype(np.float64))
        return make(index, op, (*map(np.int64, keys), index), type)

    def _index(self, shape: tuple[int, ...]) -> DistArray:
        """The number of each element: of a table, these are counted, not the rows."""
        return DistArray(self._session, iota(self._session.graph, shape))


def _size_of(size: Any, out: Any = None) -> tuple[int, ...]:
    """``size`` as a shape, ``()`` of None; it must be that of ``out=``, if that is given."""
    if out is None:
        return () if size is None else shape_of(size)
    if size is not None and shape_of(size) != out.shape:
        raise ValueError(f"size must match out.shape when used together: {size}, {out.shape}")
    return out.shape  # type: ignore[no-any-return]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def _float_dtype(dtype: Any) -> np.dtype[Any]:
    kind = check_dtype(dtype)
    if kind not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise TypeError(
            f"dtype must be float64 or float32, got {kind}; convert the result with .astype(...)"
        )
    return kind


def _as_floats(unit: Any, dtype: Any) -> Any:
    """Numbers in ``[0, 1)`` in ``dtype``; those of float32 have 24 bits, so that none is 1."""
    if _float_dtype(dtype) == np.float64:
        return unit
    return (np.floor(unit * 2.0**24) * 2.0**-24).astype(np.float32)


def _check_not_negative(function: str, **parameters: Any) -> None:
    """``ValueError``, as NumPy's, for a number below 0."""
    for name, value in parameters.items():
        if _is_number(value) and not value >= 0:
            raise ValueError(f"{function}: {name} < 0: {name} must be 0 or more, got {value}")


def _check_positive(function: str, a: Any) -> None:
    """``ValueError``, as NumPy's, for a shape that is not above 0."""
    if _is_number(a) and not a > 0:
        raise ValueError(f"{function}: a <= 0: a must be greater than 0, got {a}")


def _check_range(low: int, high: int, kind: np.dtype[Any]) -> None:
    """``ValueError`` as NumPy's for integers that ``kind`` has not, or too many of them."""
    if kind.kind not in "iub":
        raise TypeError(
            f"integers: dtype must be an integer dtype or bool, got {kind}; write "
            f".astype({kind.name!r})"
        )
    limits = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    for name, value, least in (("low", low, limits[0]), ("high", high, limits[0] + 1)):
        if not least <= value <= least + limits[1] - limits[0]:
            raise ValueError(f"{name} is out of bounds for {kind}: {value}")
    if not low < high <= low + 2**53:
        raise ValueError(f"integers: need low < high <= low + 2**53, got {low} and {high}")


def _exponential(unit: Any, scale: Any) -> Any:
    return -np.log1p(-unit) * scale


def _weibull(unit: Any, a: Any) -> Any:
    return 0.0 * unit if _is_number(a) and a == 0 else _exponential(unit, 1.0) ** (1 / a)


def _laplace(unit: Any, loc: Any, scale: Any) -> Any:
    tail = np.where(unit < 0.5, np.log(2.0 * unit), -np.log(2.0 * (1.0 - unit)))
    return loc + tail * scale


def _logistic(unit: Any, loc: Any, scale: Any) -> Any:
    return loc + np.log(unit / (1.0 - unit)) * scale


def _gumbel(unit: Any, loc: Any, scale: Any) -> Any:
    return loc - np.log(-np.log(unit)) * scale


def _rayleigh(unit: Any, scale: Any) -> Any:
    return np.sqrt(_exponential(unit, 2.0)) * scale


def permuted_array(x: Any, axis: int, permutation: Callable[[int], Any]) -> Any:
    """The elements, rows or columns of ``x`` in the order that ``permutation`` of a length says."""
    along = normalize_axis_index(axis, x.ndim)
    order = permutation(x.shape[along])
    if along or x.node.on_client:
        return np.take(x, order.numpy(), axis=along)
    return x[order]


def uniform_at(counters: Any, seed: int = 0) -> Any:
    """A number uniform in ``[0, 1)`` for each of ``counters``: integers, on servers or in NumPy.

    It depends on ``seed`` and the counter alone (Philox4x32-10), 53 random bits each; lazy of lazy
    arrays. ``TypeError`` for counters that are no integers.
    """
    if not isinstance(counters, Arithmetic):
        given = np.asarray(counters)
        if given.dtype.kind not in "iu":
            raise TypeError(f"counters must be integers, got {given.dtype}")
        return philox.uniform(key_of(seed, 6), given)
    if counters.dtype.kind not in "iu":
        raise TypeError(f"counters must be integers, got {counters.dtype}")
    index = counters.astype(np.int64)
    key = np.int64(key_of(seed, 6))
    return make(index, "uniform", (key, index), index.node.type.of(np.dtype(np.float64)))


def key_of(seed: Any, stream: int) -> int:
    """A 63-bit key: the seed's sequence, told apart by stream. ``TypeError`` unless an integer."""
    if seed is not None and not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be an integer or None, got {seed!r}")
    entropy = None if seed is None else [int(seed) & (2**64 - 1), stream]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


class AliasTable:
    """Draw integers with given probabilities from a table that is built once.

    A draw depends only on the seed and a counter. So it can be repeated on the client, on a
    server, or in a Spark task that runs again. A row program can draw, too:
    ``table.draw(keys * 8 + k)``.

    Parameters
    ----------
    weights : array_like
        Vector of shape ``(n,)``: non-negative weights of ``0, ..., n - 1`` with a positive, finite
        sum.

    Raises
    ------
    ValueError
        If ``weights`` is not such a vector.

    Notes
    -----
    It takes O(n) time to build and O(1) time for each draw. A row program carries the table with
    each call, 16 bytes for each entry.

    References
    ----------
    A. J. Walker, ACM Trans. Math. Softw. 3 (1977) 253-256. The table is built by a pass over prefix
    sums: L. Huebschle-Schneider, P. Sanders, ESA 2019.

    Examples
    --------
    >>> table = dv.AliasTable([1.0, 0.0, 3.0])
    >>> table.probabilities
    array([0.25, 0.  , 0.75])
    >>> draws = table.draw(np.arange(1000), seed=7)
    >>> np.unique(draws)
    array([0, 2])
    """

    def __init__(self, weights: npt.ArrayLike) -> None:
        """``weights``: shape ``(n,)``, at least 0, in any sum. ``ValueError`` for others."""
        given = np.asarray(weights, np.float64)
        if given.ndim != 1 or not 0 < len(given) <= MOST_ELEMENTS:
            raise ValueError(
                f"weights must be a vector of 1 to {MOST_ELEMENTS} numbers, got shape {given.shape}"
            )
        total = given.sum()
        if not (given.min() >= 0 and 0 < total < np.inf):
            raise ValueError(
                f"weights must be >= 0 with a positive, finite sum; got min {given.min()}, sum "
                f"{total}"
            )
        self._threshold, self._alias = _alias_table(given * (len(given) / total))

    def __len__(self) -> int:
        return len(self._alias)

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """Return the probability of each place, as the table represents it.

        Returns
        -------
        numpy.ndarray
            Vector of float64, of shape ``(n,)``, that sums to 1.
        """
        given_away = np.bincount(self._alias, 1.0 - self._threshold, len(self))
        found: npt.NDArray[np.float64] = (self._threshold + given_away) / len(self)
        return found

    def draw(self, counters: Arithmetic | npt.ArrayLike, *, seed: int = 0) -> Any:
        """Draw a place for each counter.

        Parameters
        ----------
        counters : DistArray or array_like of int
            Counters; equal counters draw the same place.
        seed : int, default 0
            Seed; other seeds give other draws.

        Returns
        -------
        DistArray or numpy.ndarray
            Array of int64 in the shape of ``counters``; lazy if they are on the servers.

        Raises
        ------
        TypeError
            If the counters are not integers.

        Notes
        -----
        Sends no request.
        """
        scaled = uniform_at(counters, seed) * float(len(self))
        place = np.minimum(np.floor(scaled), len(self) - 1.0).astype(np.int64)
        within = scaled - place
        return np.where(within < self._at(place, "_threshold"), place, self._at(place, "_alias"))

    def _at(self, place: Any, name: str) -> Any:
        table = getattr(self, name)
        if isinstance(place, Arithmetic):
            return look_up(place, "looked_up", table.dtype, [table])
        return table[place]

    def __repr__(self) -> str:
        return f"<alias table of {len(self)} places>"


def _alias_table(
    weights: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """For weights of mean 1: how much of each place is its own, and whose the rest is.

    Places with too little get the rest from those with too much, in order; one of these that has
    given away more than it had too much gets that from the next.
    """
    threshold, alias = np.ones(len(weights)), np.arange(len(weights))
    light, heavy = np.flatnonzero(weights < 1.0), np.flatnonzero(weights >= 1.0)
    if not (len(light) and len(heavy)):  # they are equal, but for roundings
        return threshold, alias
    needed, spare = np.cumsum(1.0 - weights[light]), np.cumsum(weights[heavy] - 1.0)
    before = np.append(0.0, needed[:-1])
    giver = np.minimum(np.searchsorted(spare, before, side="right"), len(heavy) - 1)
    threshold[light], alias[light] = weights[light], heavy[giver]
    served = np.searchsorted(before, spare[:-1], side="left")  # so many, by this one or before
    over = np.where(served > 0, needed[served - 1], 0.0) - spare[:-1]
    threshold[heavy[:-1]] = 1.0 - np.clip(over, 0.0, 1.0)
    alias[heavy[:-1]] = heavy[1:]
    return threshold, alias
