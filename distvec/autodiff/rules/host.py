"""What the client does with small arrays that it keeps, linear algebra included."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.indexing.getitem import encode_key
from distvec.array.transposed import transpose
from distvec.autodiff.rules.moves import summed_by_place
from distvec.autodiff.steps import Adjoint, NotDifferentiable, Rule, Step, shrunk
from distvec.graph.host_eval import FUNCTIONS, function_name


def _reshape(step: Step, number: int) -> Adjoint:
    own = step.node.args[0].type.shape
    return (
        step.adjoint
        if step.is_number
        else step.on_client("client.reshape", [step.whole()], own, own)
    )


def _transpose(step: Step, number: int) -> Adjoint:
    return step.adjoint if step.is_number else transpose(step.whole())


def _broadcast(step: Step, number: int) -> Adjoint:
    return shrunk(step, step.adjoint, step.node.args[0])


def _places(step: Step, shape: tuple[int, ...]) -> Any:
    """Where what the key of the step names is among all elements of an array of ``shape``."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return FUNCTIONS["client.item"](numbers, *step.params)


def _item(step: Step, number: int) -> Adjoint:
    source = step.node.args[0]
    shape, size = source.type.shape, int(np.prod(source.type.shape))
    places = np.ravel(_places(step, shape))
    flat = step.on_client("client.reshape", [step.whole()], (places.size,), (places.size,))
    values, once = summed_by_place(step, flat, places)
    zeros = step.constant(np.zeros(size, source.dtype))
    found = step.on_client("client.put", [zeros, values], (size,), (encode_key(once),))
    return step.on_client("client.reshape", [found], shape, shape)


def _put_adjoint(step: Step, number: int) -> Adjoint:
    x, given = step.node.args
    whole = step.whole()
    if number == 0:
        zero = step.constant(np.zeros((), x.dtype))
        return step.on_client("client.put", [whole, zero], x.type.shape, step.params)
    places = _places(step, x.type.shape)
    named = step.on_client("client.item", [whole], places.shape, step.params)
    _, stays = np.unique(np.ravel(places)[::-1], return_index=True)
    if len(stays) < places.size:  # of values given to the same element, the last one
        is_last = np.zeros(places.size, bool)
        is_last[places.size - 1 - stays] = True
        named = np.where(is_last.reshape(places.shape), named, 0)
    return shrunk(Step(step.like, named.node, named), named, given)


def _stack(step: Step, number: int) -> Adjoint:
    (axis,) = step.params
    key: list[Any] = [slice(None)] * len(step.node.type.shape)
    key[axis] = number
    return (
        step.adjoint
        if step.is_number
        else _evaluate_named(step, key, step.node.args[number].type.shape)
    )


def _concatenate(step: Step, number: int) -> Adjoint:
    (axis,) = step.params
    if step.is_number:
        return step.adjoint
    extents = [arg.type.shape[axis] for arg in step.node.args]
    first = sum(extents[:number])
    key: list[Any] = [slice(None)] * len(step.node.type.shape)
    key[axis] = slice(first, first + extents[number])
    return _evaluate_named(step, key, step.node.args[number].type.shape)


def _evaluate_named(step: Step, key: list[Any], shape: tuple[int, ...]) -> Any:
    return step.on_client("client.item", [step.whole()], shape, [encode_key(one) for one in key])


def _accumulate(step: Step, number: int) -> Adjoint:
    name, axis, _ = step.params
    if name != "add":
        raise NotDifferentiable(f"{name}.accumulate of a small array has no derivative here")
    return np.flip(np.cumsum(np.flip(step.whole(), axis), axis=axis), axis)


def _reduceat(step: Step, number: int) -> Adjoint:
    """Of sums of what lies between indices that rise from 0: each sum's adjoint to all of its."""
    name, starts, axis, _ = step.params
    if name != "add" or axis != 0 or starts[0] != 0 or any(np.diff(starts) <= 0):
        raise NotDifferentiable(f"{name}.reduceat with these indices has no derivative here")
    shape = step.node.args[0].type.shape
    part = np.searchsorted(starts, np.arange(shape[0]), side="right") - 1
    return step.adjoint if step.is_number else _evaluate_named(step, [part], shape)


_HOST: dict[str, Rule] = {
    "client.reshape": _reshape,
    "client.transpose": _transpose,
    "client.broadcast": _broadcast,
    "client.item": _item,
    "client.put": _put_adjoint,
    "client.stack": _stack,
    "client.concatenate": _concatenate,
    "client.accumulate": _accumulate,
    "client.reduceat": _reduceat,
}
HOST_RULES = MappingProxyType(_HOST)


def _inv(step: Step, number: int) -> Adjoint:
    turned = transpose(step.result)
    return -(turned @ step.whole() @ turned)


def _solve(step: Step, number: int) -> Adjoint:
    right = np.linalg.solve(transpose(step.arg(0)), step.whole())
    if number == 1:
        return right
    result = step.result
    if result.ndim == 1:
        return -(right.reshape(-1, 1) * result)
    return -(right @ transpose(result))


def _det(step: Step, number: int) -> Adjoint:
    return step.adjoint * step.result * transpose(np.linalg.inv(step.arg(0)))


_LINEAR_ALGEBRA: dict[Any, Rule] = {
    np.linalg.inv: _inv,
    np.linalg.solve: _solve,
    np.linalg.det: _det,
}
LINEAR_ALGEBRA_RULES = MappingProxyType(
    {function_name(function): rule for function, rule in _LINEAR_ALGEBRA.items()}
)
