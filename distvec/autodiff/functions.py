"""``grad``, ``value_and_grad`` and ``hessian_product``: from functions to their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from distvec.array.core.handle import check_session, host_array, stored_table
from distvec.array.core.operators import Arithmetic
from distvec.array.products import vdot
from distvec.array.transposed import transpose
from distvec.autodiff.reverse import gradients
from distvec.autodiff.steps import NotDifferentiable
from distvec.graph.node import Node, bind_variable, substitute, variable


def leaves(tree: Any) -> Iterator[Any]:
    """Iterate over the arrays of ``tree``, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, tuple | list):
        for one in tree:
            yield from leaves(one)
    else:
        yield tree


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return ``tree`` with ``function`` applied to each array, in the order of ``leaves``."""
    if isinstance(tree, dict):
        return {name: map_leaves(function, one) for name, one in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, one) for one in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(map_leaves(function, one) for one in tree)
    return function(tree)


Function = Callable[..., Any]


def value_and_grad(
    f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Function:
    """Return a function that computes the value and the gradient of ``f``.

    Both results are lazy, so they share their passes over memory.

    Parameters
    ----------
    f : callable
        A function of arrays, written with NumPy's operations. It returns a scalar array, for
        example from ``sum`` or ``@``.
    argnums : int or sequence of int, default 0
        Positions of the arguments to differentiate with respect to. Each is an array of floats, or
        a tuple, list or dict of such arrays. Small ones may be NumPy arrays.
    has_aux : bool, default False
        Whether ``f`` returns a pair ``(value, more)``; only ``value`` is differentiated.

    Returns
    -------
    callable
        A function with the arguments of ``f`` that returns ``(value, gradient)``. The gradient has
        the structure of the argument; if ``argnums`` is a sequence, it is a tuple of them. With
        ``has_aux``, the result is ``((value, more), gradient)``.

    Raises
    ------
    NotDifferentiable
        When the returned function is called: if an operation has no derivative, or ``f`` reads a
        value. It is a ``TypeError``.
    ValueError
        When it is called: if the result of ``f`` is not a scalar.

    See Also
    --------
    grad : Compute the gradient alone.

    Notes
    -----
    Tracing sends no request. An evaluation of value and gradient is one plan. A NumPy array is sent
    with the program, and its gradient is stored on the client. If no other argument is an array on
    the servers, ``f`` is called twice: the first call finds the session.

    Examples
    --------
    >>> x = ps.array([1.0, 2.0, 3.0])
    >>> value, gradient = dv.value_and_grad(lambda x: (x * x).sum())(x)
    >>> float(value), gradient.numpy()
    (14.0, array([2., 4., 6.]))
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, more, found = _differentiate(f, numbers, has_aux, args, kwargs)
        gradient = found[0] if isinstance(argnums, int) else found
        return ((value, more) if has_aux else value), gradient

    return differentiated


def grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """Return a function that computes the gradient of ``f`` with respect to argument ``argnums``.

    Parameters
    ----------
    f : callable
        A function of arrays that returns a scalar array, see ``value_and_grad``.
    argnums : int or sequence of int, default 0
        Positions of the arguments to differentiate with respect to.
    has_aux : bool, default False
        Whether ``f`` returns a pair ``(value, more)``; only ``value`` is differentiated.

    Returns
    -------
    callable
        A function with the arguments of ``f`` that returns the gradient; lazy. With ``has_aux`` it
        returns ``(gradient, more)``.

    See Also
    --------
    value_and_grad : Compute value and gradient, and describe the errors.

    Examples
    --------
    >>> x = ps.array([1.0, 2.0, 3.0])
    >>> dv.grad(lambda x: np.log(x).sum())(x).numpy()
    array([1.        , 0.5       , 0.33333333])
    """
    both = value_and_grad(f, argnums, has_aux)

    @wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


def hessian_product(f: Function) -> Function:
    """Return a function that multiplies the Hessian of ``f`` by a vector.

    Parameters
    ----------
    f : callable
        A function ``f(x, ...)`` that returns a scalar array, see ``value_and_grad``.

    Returns
    -------
    callable
        A function of ``(x, v, ...)`` that returns the Hessian of ``f`` at ``x`` times ``v``; lazy.
        ``v`` has the structure of ``x``.

    Notes
    -----
    It is the gradient of the inner product of the gradient and ``v``. It costs a few times as much
    as a gradient, and the Hessian is never formed.

    Examples
    --------
    >>> x, v = ps.array([1.0, 2.0]), ps.array([1.0, 0.5])
    >>> dv.hessian_product(lambda x: (x**3).sum())(x, v).numpy()
    array([6., 6.])
    """

    def slope(x: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = zip(leaves(grad(f)(x, *args, **kwargs)), leaves(v), strict=True)
        products = [vdot(one, along) for one, along in pairs]
        return sum(products[1:], products[0])

    return grad(slope)


def _differentiate(
    f: Function, numbers: tuple[int, ...], has_aux: bool, args: tuple[Any, ...], kwargs: Any
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return the value, the second result of ``f``, and the gradients."""
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise TypeError(
                f"argnums: there is no positional argument {number}; got {len(args)} positional "
                "arguments"
            )
    args = _with_client_arrays(f, numbers, args, kwargs)
    wanted = tuple(args[number] for number in numbers)
    arrays = [_as_split_by_rows(one) for one in leaves(wanted)]
    if not arrays:
        raise TypeError(
            f"argnums={numbers}: these arguments contain no array on the servers; pass "
            "session.array(x), or choose other arguments by argnums="
        )
    like, nodes = arrays[0], [one.node for one in arrays]
    graph = like.session.graph
    for one in arrays:
        check_session(like.session, one, "grad")
    with like.session.tracing():
        variables = [variable(graph, node) for node in nodes]
        handles = iter([like.like(node) for node in variables])
        traced = map_leaves(lambda one: _split_like(next(handles), one), wanted)
        positional = list(args)
        for number, one in zip(numbers, traced, strict=True):
            positional[number] = one
        try:
            value, more = _parts(f(*positional, **kwargs), has_aux, like)
            found = gradients(value, variables)
            made = _replace_nodes(dict(zip(variables, nodes, strict=True)), [value, *found], more)
        finally:
            for node, argument in zip(variables, nodes, strict=True):
                bind_variable(node, argument)
    (value, *found), more = made
    slopes = iter(found)
    return value, more, map_leaves(lambda one: _split_like(next(slopes), one), wanted)


def _with_client_arrays(
    f: Function, numbers: tuple[int, ...], args: tuple[Any, ...], kwargs: Any
) -> tuple[Any, ...]:
    """Return ``args`` with NumPy's arrays of floats, at ``numbers``, as small ones of the session.

    It is the session of other arguments; else ``f`` is called to see whose arrays it uses.
    """
    if not any(isinstance(one, np.ndarray) for k in numbers for one in leaves(args[k])):
        return args
    like = _first_of_ours([*args, *kwargs.values()]) or _first_of_ours(f(*args, **kwargs))
    if like is None:
        return args

    def convert(one: Any) -> Any:
        return host_array(like, one) if isinstance(one, np.ndarray | np.floating | float) else one

    found = list(args)
    for number in numbers:
        found[number] = map_leaves(convert, args[number])
    return tuple(found)


def _first_of_ours(tree: Any) -> Any:
    return next((one for one in leaves(tree) if isinstance(one, Arithmetic)), None)


def _as_split_by_rows(array: Any) -> Any:
    """Return an argument row-partitioned; ``TypeError`` if it is no float array on servers."""
    if not isinstance(array, Arithmetic):
        raise TypeError(
            f"grad needs arrays on the servers, got an argument of type {type(array).__name__}; "
            "copy it there: session.array(x) (to try it out, in a session of distvec.local(1, "
            "in_process=True))"
        )
    if array.dtype.kind != "f":
        raise TypeError(
            f"grad needs arrays of floats, got {array.dtype}; convert it: x.astype('float64')"
        )
    return stored_table(array).materialized().copy()


def _split_like(array: Any, like: Any) -> Any:
    """Return ``array`` partitioned like the argument ``like``: by columns, if that is."""
    return transpose(array) if like.is_split_by_columns else array


def _parts(returned: Any, has_aux: bool, like: Arithmetic) -> tuple[Any, Any]:
    """Return the value and the second result; errors if they have no gradient."""
    value, more = returned, None
    if has_aux:
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError("with has_aux=True the function must return a pair (value, more)")
        value, more = returned
    if isinstance(value, tuple | list | dict):
        raise TypeError(
            f"the function must return a scalar, got a {type(value).__name__}; to return (value, "
            "more), set has_aux=True"
        )
    if not isinstance(value, Arithmetic):
        raise NotDifferentiable(
            f"the function returned a {type(value).__name__}, which has no graph to "
            "differentiate; return the lazy scalar of sum() or @, without float() or .item()"
        )
    if value.ndim:
        raise ValueError(
            f"the function must return a scalar, got shape {value.shape}; return its sum: "
            "result.sum()"
        )
    if value.dtype.kind != "f":
        raise TypeError(f"the function must return a float, as {value.dtype} has no derivative")
    check_session(like.session, value, "grad")
    return value, more


def _replace_nodes(
    instead: dict[Node, Node], arrays: Sequence[Any], more: Any
) -> tuple[list[Any], Any]:
    """Return ``arrays``, and the arrays of ``more``, built from other nodes."""
    held = [one for one in leaves(more) if isinstance(one, Arithmetic)]
    plain = [*arrays, *map(stored_table, held)]
    session = plain[0].session
    with session.holders.lock:
        nodes = substitute(session.graph, [one.node for one in plain], instead)
        found = [one.like(node) for one, node in zip(plain, nodes, strict=True)]
    others = iter([_split_like(*pair) for pair in zip(found[len(arrays) :], held, strict=True)])

    def replace(one: Any) -> Any:
        return next(others) if isinstance(one, Arithmetic) else one

    return found[: len(arrays)], map_leaves(replace, more)
