"""``grad``, ``value_and_grad`` and ``hessian_product``: from functions to their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

from distvec.array.core.handle import check_session, stored_table
from distvec.array.core.operators import Arithmetic
from distvec.array.products import vdot
from distvec.array.transposed import transpose
from distvec.autodiff.reverse import gradients
from distvec.autodiff.steps import NotDifferentiable
from distvec.graph.node import Node, bind_variable, substitute, variable


def leaves(tree: Any) -> Iterator[Any]:
    """The arrays of ``tree``, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, tuple | list):
        for one in tree:
            yield from leaves(one)
    else:
        yield tree


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """``tree`` with what ``function`` makes of each array, called in the order of ``leaves``."""
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
    """The function that returns ``(f(...), gradient)``; both lazy, so they fuse.

    ``f`` returns a rank-0 array, as ``sum`` and ``@`` give, and is written with NumPy's operations.
    ``argnums`` says by which arguments to differentiate: arrays of floats on the servers, or
    tuples, lists and dicts of them; the gradient is like that argument, a tuple for a sequence of
    numbers. With ``has_aux``, ``f`` returns ``(value, more)`` and the result is
    ``((value, more), gradient)``.

    No message. ``NotDifferentiable``, a ``TypeError``, for an operation without a derivative, or a
    value that is read within ``f``; ``ValueError`` where ``f`` returns no number.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, more, found = _differentiate(f, numbers, has_aux, args, kwargs)
        gradient = found[0] if isinstance(argnums, int) else found
        return ((value, more) if has_aux else value), gradient

    return differentiated


def grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that returns the gradient of ``f``, as ``value_and_grad`` does.

    With ``has_aux`` it returns ``(gradient, more)``.
    """
    both = value_and_grad(f, argnums, has_aux)

    @wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


def hessian_product(f: Function) -> Function:
    """The function of ``(x, v, ...)`` that returns the Hessian of ``f`` at ``x`` times ``v``; lazy.

    ``f(x, ...)`` and ``x`` as for ``grad``; ``v`` is like ``x``. The gradient of the inner product
    of the gradient and ``v``: a few times what a gradient costs, and no Hessian is made.
    """

    def slope(x: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = zip(leaves(grad(f)(x, *args, **kwargs)), leaves(v), strict=True)
        products = [vdot(one, along) for one, along in pairs]
        return sum(products[1:], products[0])

    return grad(slope)


def _differentiate(
    f: Function, numbers: tuple[int, ...], has_aux: bool, args: tuple[Any, ...], kwargs: Any
) -> tuple[Any, Any, tuple[Any, ...]]:
    """The value, what ``f`` returns besides, and the gradients by the arguments ``numbers``."""
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise TypeError(
                f"argnums: there is no argument {number}; {len(args)} were given by position"
            )
    wanted = tuple(args[number] for number in numbers)
    arrays = [_as_split_by_rows(one) for one in leaves(wanted)]
    if not arrays:
        raise TypeError("there is no array to differentiate by")
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


def _as_split_by_rows(array: Any) -> Any:
    """An array to differentiate by, as one that is split by rows. ``TypeError`` if it is none."""
    if not isinstance(array, Arithmetic):
        raise TypeError(
            f"grad differentiates by arrays on the servers, and this argument is of type "
            f"{type(array).__name__}; put it there: session.array(x), in a session of "
            f"distvec.local(1, in_process=True) to try it out"
        )
    if array.dtype.kind != "f":
        raise TypeError(
            f"grad differentiates by arrays of floats, not of {array.dtype}; "
            f"convert it: x.astype('float64')"
        )
    return stored_table(array).materialized().copy()


def _split_like(array: Any, like: Any) -> Any:
    """``array`` as an argument such as ``like``: split by columns, if that is."""
    return transpose(array) if like.is_split_by_columns else array


def _parts(returned: Any, has_aux: bool, like: Arithmetic) -> tuple[Any, Any]:
    """The value and what comes with it. Errors for what has no gradient."""
    value, more = returned, None
    if has_aux:
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError("with has_aux=True the function returns a pair (value, more)")
        value, more = returned
    if isinstance(value, tuple | list | dict):
        raise TypeError(
            f"the function returned a {type(value).__name__}, not one number; of "
            f"(value, more) the value alone is differentiated with has_aux=True"
        )
    if not isinstance(value, Arithmetic):
        raise NotDifferentiable(
            f"the function returned a {type(value).__name__}, whose graph is lost; return the lazy "
            f"number that sum() or @ gives, without float() or .item()"
        )
    if value.ndim:
        raise ValueError(
            f"the function must return one number to have a gradient, but its result has shape "
            f"{value.shape}; return its sum: result.sum()"
        )
    if value.dtype.kind != "f":
        raise TypeError(f"the function returned {value.dtype}, which has no derivative")
    check_session(like.session, value, "grad")
    return value, more


def _replace_nodes(
    instead: dict[Node, Node], arrays: Sequence[Any], more: Any
) -> tuple[list[Any], Any]:
    """``arrays``, and those of ``more``, made of other nodes."""
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
