"""The differential check: one function, on NumPy and on servers."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

from distvec.array.array import DistArray
from distvec.opening import local
from distvec.session import Session
from distvec.testing.compare import assert_within, describe_divergence, distance_between, outcome
from distvec.testing.error_bounds import unit_in_last_place
from distvec.testing.rounding import MARGIN, RUNS, rounded_anew, spread
from ps_backend import kernels

ENGINES = ("numpy", "numexpr", "mixed", "numba")
"""What runs kernels: for short vectors; where there is no compiler; for those of middle length, and
what compiles them."""

_DIGITS_LOST = 4096.0


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Run all kernels of servers in this process with one engine, within a context.

    Parameters
    ----------
    name : {"numpy", "numexpr", "mixed", "numba"}
        The engine. "numexpr" runs as if numba were not installed. "mixed" compiles the loops of
        inner products and linear combinations once. "numba" compiles each new structure for about
        half a second; very long passes still use "mixed".

    Yields
    ------
    None
        Within the context, in-process servers use the engine.

    Raises
    ------
    ValueError
        If ``name`` is not an engine.

    Examples
    --------
    >>> from distvec.testing import engine
    >>> with engine("numpy"):
    ...     float(ps.ones(3).sum())
    3.0
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(map(repr, ENGINES))}, got {name!r}")
    never, always = 2**63, 0
    patched: dict[str, Any] = {
        "NUMBA_FROM_LENGTH": always if name == "numba" else never,
        "LINEAR_FROM_LENGTH": always if name in ("mixed", "numba") else never,
        "NUMEXPR_FROM_LENGTH": always if name == "numexpr" else never,
    }
    if name == "numexpr":
        patched["has_compiler"] = lambda: False
    with mock.patch.multiple(kernels, **patched), kernels.compiled_at_once():
        yield


def same_on_all_backends(
    function: Callable[..., Any],
    *arguments: object,
    servers: Iterable[int] = (1, 2, 3),
    engines: Iterable[str] = ("numpy", "mixed", "numba"),
    rtol: float | None = None,
    ulps: float = 0,
) -> None:
    """Check that a function gives the same results on servers as on NumPy arrays.

    The function is called with copies of the arguments: once with NumPy arrays, and with
    distributed arrays for each engine and number of servers. The servers run in this process.

    Parameters
    ----------
    function : callable
        A function of arrays. Its result, its exception, and its in-place changes of arguments are
        compared. If it yields its iterates, or returns a list of them, each is compared, and the
        error names the first iteration that differs.
    *arguments : object
        Arguments: numbers, NumPy arrays, and tuples, lists, mappings or dataclasses of them.
    servers : iterable of int, default (1, 2, 3)
        Numbers of servers. Their results must be bitwise identical.
    engines : iterable of str, default ("numpy", "mixed", "numba")
        Engines of the servers, see ``engine``.
    rtol : float, optional
        Allowed difference of floats from NumPy, relative to the largest finite element of their
        array. Default: 4096 times the roundoff of the dtype, 9e-13 for float64, and more if the
        problem is ill-conditioned, see Notes.
    ulps : float, default 0
        Allowed difference of floats in units in the last place, added to ``rtol``. With
        ``rtol=0, ulps=0`` the results must be bitwise identical to NumPy's.

    Raises
    ------
    AssertionError
        If a result differs; the message names the backend, the place and both values.

    Notes
    -----
    Without ``rtol``, floats that differ by more are compared with the effect of rounding. The
    function runs 8 more times on NumPy, each time with other random roundings. Floats may differ
    from NumPy's by 32 times the largest difference of these runs, and counts by twice.

    The sessions stay open for the next check, so plans and kernels of a function are made once.
    After a failure, or if the function keeps pending arrays, the next check opens a new session.

    Examples
    --------
    >>> from distvec.testing import same_on_all_backends
    >>> def normalize(x):
    ...     return x / np.sqrt(x @ x)
    >>> same_on_all_backends(normalize, np.arange(1.0, 2000.0), engines=["numpy"])
    """
    expected = _observe(function, arguments, lambda array: array.copy())
    runs = cache(lambda: [_run_rounded(function, arguments, seed) for seed in range(RUNS)])
    counts = list(servers)
    passed: Any = None
    for name in engines:
        first: Any = None
        for count in counts:
            where = f"{_plural(count)}, {name}"
            with engine(name), _lent_session(name, count) as session:
                got = _observe(function, arguments, session.array)
                if passed is None or not _are_identical(got, passed):
                    _judge(got, expected, where, rtol, ulps, runs)
                    if first is not None:
                        _compare(got, first, f"{where} beside {_plural(counts[0])}", 0.0, 0.0)
            passed = got
            first = got if first is None else first


@cache
def _idle_sessions() -> dict[tuple[str, int], list[Session]]:
    """Open sessions, by engine and number of servers: the next check needs no new ones."""
    return {}


@contextmanager
def _lent_session(name: str, servers: int) -> Iterator[Session]:
    """A session that knows the plans and kernels of earlier checks with this engine.

    It is closed after a failure, or if the function changed it or keeps something pending.
    """
    idle = _idle_sessions().setdefault((name, servers), [])
    session = idle.pop() if idle else local(servers=servers, in_process=True)
    limit, is_as_before = session.cancellation_limit, False
    try:
        yield session
        is_as_before = (
            not session.client.is_closed
            and session.cancellation_limit == limit
            and not list(session.names)
            and not len(session.graph)
        )
    finally:
        if is_as_before:
            session.counters.reset()
            idle.append(session)
        else:
            session.close()


def _are_identical(got: dict[str, Any], passed: dict[str, Any]) -> bool:
    """Whether the effects are those that passed before, so that they pass, too."""
    try:
        _compare(got, passed, "", 0.0, 0.0)
    except AssertionError:
        return False
    return got["exception"] is passed["exception"]


def _judge(
    got: dict[str, Any],
    expected: dict[str, Any],
    where: str,
    rtol: float | None,
    ulps: float,
    runs: Callable[[], list[dict[str, Any]]],
) -> None:
    """Raise ``AssertionError`` unless rounding explains the differences."""
    try:
        _compare(got, expected, where, rtol, ulps)
    except AssertionError:
        if rtol is not None:
            raise
        try:
            _compare(got, expected, where, rtol, ulps, runs())
        except AssertionError as error:
            if isinstance(expected["result"], list) or not distance_between(
                got["result"], expected["result"]
            ):
                raise
            advice = "let the function yield its iterates to see where the paths part"
            raise AssertionError(f"{error}; {advice}") from None


def _observe(
    function: Callable[..., Any], arguments: tuple[Any, ...], array: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return the effects of a call: its result or exception, and its arguments afterwards."""
    given = [_map_arrays(argument, array) for argument in arguments]
    result, refused = outcome(_call, function, given)
    seen = {"exception": refused, "result": result}
    seen |= {f"argument {number}": argument for number, argument in enumerate(given)}
    return {name: _map_arrays(value, np.asarray, pull=True) for name, value in seen.items()}


def _call(function: Callable[..., Any], given: Iterable[Any]) -> Any:
    """Return the result of ``function``; the items of an iterator as a list."""
    result = function(*given)
    if not isinstance(result, Iterator):
        return result
    # Copied as they come, since the next iteration may change them in place.
    return [_map_arrays(item, np.array, pull=True) for item in result]


def _run_rounded(
    function: Callable[..., Any], arguments: tuple[Any, ...], seed: int
) -> dict[str, Any]:
    """Return the effects of a call on NumPy with random roundings of that seed."""
    random = np.random.default_rng(seed)
    return _observe(function, arguments, lambda array: rounded_anew(array.copy(), random))


def _map_arrays(value: Any, array: Callable[[Any], Any], *, pull: bool = False) -> Any:
    """``value`` with ``array`` applied to its NumPy arrays; with ``pull``, as NumPy's."""
    if isinstance(value, DistArray):
        return value.numpy() if pull else value
    if isinstance(value, np.ndarray):
        return array(value)
    if isinstance(value, Mapping):
        return {key: _map_arrays(item, array, pull=pull) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_arrays(item, array, pull=pull) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_map_arrays(item, array, pull=pull) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        items = {name: _map_arrays(getattr(value, name), array, pull=pull) for name in names}
        if pull:
            return items
        twin = copy.copy(value)
        for name, item in items.items():
            object.__setattr__(twin, name, item)  # frozen ones as well
        return twin
    return value


def _compare(
    ours: Any,
    theirs: Any,
    where: str,
    rtol: float | None,
    ulps: float,
    runs: Sequence[Any] = (),
    path: str = "",
) -> None:
    """``AssertionError`` that names the ``path`` to the first difference.

    ``runs``: the same from NumPy with other roundings, which say how far floats may be apart.
    """
    what = f"{where}: {path or 'call'}"
    if isinstance(theirs, dict) and isinstance(ours, dict):
        _check_equal(list(ours), list(theirs), f"keys of {what}")
        for key in theirs:
            deeper = f"{path}.{key}" if path else key
            _compare(ours[key], theirs[key], where, rtol, ulps, _items(runs, key), deeper)
    elif isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
            deeper = f"{path}[{number}]"
            try:
                _compare(mine, other, where, rtol, ulps, _items(runs, number), deeper)
            except AssertionError as error:
                if path != "result" or not isinstance(theirs, list):
                    raise
                raise AssertionError(
                    f"{error}; {describe_divergence(ours, theirs, number)}"
                ) from None
        _check_counts(len(ours), len(theirs), [*map(len, _lists(runs))], f"length of {what}")
    elif type(theirs) is int and type(ours) is int:
        _check_counts(ours, theirs, [run for run in runs if type(run) is int], what)
    elif isinstance(theirs, _NUMBERS) and isinstance(ours, _NUMBERS):
        _compare_arrays(np.asarray(ours), np.asarray(theirs), rtol, ulps, runs, what)
    elif isinstance(theirs, type) and isinstance(ours, type):
        related = issubclass(ours, theirs) or issubclass(theirs, ours)
        _check_equal(ours if not related else theirs, theirs, what)
    else:
        _check_equal(ours, theirs, what)


_NUMBERS = (np.ndarray, np.generic, bool, int, float)


def _items(runs: Sequence[Any], key: Any) -> list[Any]:
    """Return ``run[key]`` of each of the runs that has it."""
    found = (outcome(operator.getitem, run, key) for run in runs)
    return [value for value, refused in found if refused is None]


def _lists(runs: Sequence[Any]) -> list[Any]:
    return [run for run in runs if isinstance(run, list | tuple)]


def _check_counts(ours: int, theirs: int, runs: Sequence[int], what: str) -> None:
    """Counts are equal; if rounding changes NumPy's own, no more than twice as far apart."""
    if abs(ours - theirs) > 2 * max((abs(run - theirs) for run in runs), default=0):
        _check_equal(ours, theirs, what)


def _compare_arrays(
    ours: Any, theirs: Any, rtol: float | None, ulps: float, runs: Sequence[Any], what: str
) -> None:
    alike = (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if alike and ours.tobytes() == theirs.tobytes():
        return  # any bound allows the same bits, and takes longer to compute
    bound = ulps * unit_in_last_place(theirs)
    if theirs.dtype.kind == "f":
        share = _DIGITS_LOST * float(np.finfo(theirs.dtype).eps) if rtol is None else rtol
        size = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
        others = [np.asarray(run) for run in runs if isinstance(run, _NUMBERS)]
        bound = bound + share * float(size) + MARGIN * spread(others, theirs)
    assert_within(ours, theirs, bound, what)


def _check_equal(ours: Any, theirs: Any, what: str) -> None:
    if ours is not theirs and ours != theirs:
        raise AssertionError(f"{what}: {ours!r} on servers, {theirs!r} on NumPy")


def _plural(count: int) -> str:
    return "1 server" if count == 1 else f"{count} servers"
