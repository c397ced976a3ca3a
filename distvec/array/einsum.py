"""``einsum`` of vectors and tables: sums of products, spelled in the other operations.

The label of the split axis divides the operands: those that have it are combined on the servers,
and what is left is small and is combined by the client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from distvec.array import products
from distvec.array.creation import reshape
from distvec.array.functions import array_among
from distvec.array.reductions import sum
from distvec.array.transposed import Transposed, transpose
from distvec.graph import build, shapes
from ps_backend.program.types import client_type


@dataclass(slots=True)
class _Term:
    """An array and the labels of its axes."""

    array: Any
    labels: str

    @property
    def on_servers(self) -> bool:
        return not self.array.node.on_client


def einsum(subscripts: str, /, *operands: Any, optimize: Any = False) -> Any:
    """``numpy.einsum`` of arrays of rank 0 to 2; lazy.

    Every operand that has the label of a split axis must have it first: ``einsum("ij,j->i", T, v)``
    is ``T @ v``, ``einsum("ij,ik->jk", T, U)`` is ``T.T @ U``.
    """
    inputs, output = _parsed(subscripts, len(operands))
    like = array_among("einsum", tuple(getattr(one, "table", one) for one in operands))
    terms = []
    for labels, operand in zip(inputs, operands, strict=True):
        if isinstance(operand, Transposed):
            terms.append(_Term(operand.table, labels[::-1]))
        else:
            terms.append(_Term(products.as_array(like, operand, "einsum"), labels))
        if len(labels) != terms[-1].array.ndim:
            raise ValueError(
                f"einsum: operand of rank {terms[-1].array.ndim} has {len(labels)} labels"
            )
    _check_extents(terms)
    split = next((t.labels[0] for t in terms if t.on_servers and t.labels), "")
    result = _contracted(terms, split, output) if split else _on_client(terms, output)
    # Sums of integers are wide until here; NumPy adds them up in their own dtype.
    return result.astype(np.result_type(*(term.array.dtype for term in terms)))


def _parsed(subscripts: str, count: int) -> tuple[list[str], str]:
    text = subscripts.replace(" ", "")
    given, arrow, output = text.partition("->")
    inputs = given.split(",")
    if len(inputs) != count:
        raise ValueError(f"einsum: {len(inputs)} subscripts for {count} operands")
    labels = "".join(inputs)
    if not arrow:
        output = "".join(sorted(one for one in set(labels) if labels.count(one) == 1))
    if "." in text or any(len(set(one)) < len(one) for one in (*inputs, output)):
        raise NotImplementedError(
            f"einsum: {subscripts!r} has an ellipsis or a diagonal, which the servers have not"
        )
    if not set(output) <= set(labels) or not (labels + output).isascii():
        raise ValueError(f"einsum: output {output!r} has labels that no operand has")
    return inputs, output


def _check_extents(terms: Sequence[_Term]) -> None:
    extents: dict[str, int] = {}
    for term in terms:
        for label, extent in zip(term.labels, term.array.shape, strict=True):
            if extents.setdefault(label, extent) != extent:
                raise ValueError(
                    f"einsum: label {label!r} has extents {extents[label]} and {extent}"
                )


def _contracted(terms: Sequence[_Term], split: str, output: str) -> Any:
    """Combine what has the split label on the servers, with what else they need for it."""
    here = [_along(term, split) for term in terms if split in term.labels]
    space = next(term.array.space for term in here if term.on_servers)
    here = [_spread(term, space) for term in here]
    small = [_collected(term) for term in terms if split not in term.labels]
    columns = sorted({label for term in here for label in term.labels[1:]})
    if split not in output and len(columns) == 2:
        first, second = (_product([t for t in here if label in t.labels]) for label in columns)
        weights = [term for term in here if len(term.labels) == 1]
        first = _product([first, *weights])
        return _on_client([_gram(first, second), *small], output)
    if len(columns) > 1:
        raise NotImplementedError("einsum: the result would have more than two axes on the servers")
    product = _product(here)
    if split not in output:
        elsewhere = set(output).union(*(term.labels for term in small))
        if product.labels[1:] and product.labels[1] not in elsewhere:
            return _on_client([_Term(sum(product.array), ""), *small], output)
        summed = _Term(sum(product.array, 0 if product.array.ndim else None), product.labels[1:])
        return _on_client([summed, *small], output)
    for term in small:
        product = _times_small(product, term, output)
    if product.labels[1:] and product.labels[1] not in output:
        product = _Term(sum(product.array, 1), split)
    if product.labels == output:
        return product.array
    if product.labels == output[::-1]:
        return transpose(product.array)
    raise NotImplementedError(f"einsum: no way to the output {output!r} on the servers")


def einsum_path(
    subscripts: str, /, *operands: Any, optimize: Any = "greedy", einsum_call: bool = False
) -> Any:
    """``numpy.einsum_path``: shapes alone say it."""
    like = (np.broadcast_to(np.float64(), one.shape) for one in operands)
    return np.einsum_path(subscripts, *like, optimize=optimize)


def _along(term: _Term, split: str) -> _Term:
    """``term`` with the split axis first."""
    if term.labels[0] == split:
        return term
    if term.on_servers:
        raise NotImplementedError(
            f"einsum: the axis {split!r} is split over the servers in one operand, and along the "
            f"rows of another"
        )
    return _Term(transpose(term.array), term.labels[::-1])


def _spread(term: _Term, space: Any) -> _Term:
    if term.on_servers:
        return term
    array = term.array
    with array.session.holders.lock:
        node = shapes.spread(array.session.graph, array.node, space)
        return _Term(array.like(node), term.labels)


def _collected(term: _Term) -> _Term:
    array = term.array
    with array.session.holders.lock:
        return _Term(array.like(shapes.collected(array.session.graph, array.node)), term.labels)


def _product(terms: Sequence[_Term]) -> _Term:
    """The elementwise product of terms over one space, with at most one label besides."""

    def times(a: _Term, b: _Term) -> _Term:
        wide, other = (a, b) if len(a.labels) >= len(b.labels) else (b, a)
        narrow = other.array
        if len(wide.labels) > len(other.labels):
            narrow = reshape(narrow, (len(narrow), 1))
        return _Term(wide.array * narrow, wide.labels)

    return reduce(times, terms)


def _gram(x: _Term, y: _Term) -> _Term:
    like, dtype = x.array, np.result_type(x.array.dtype, y.array.dtype)
    with like.session.holders.lock:
        graph = like.session.graph
        first, second = (build.cast(graph, term.array.node, dtype) for term in (x, y))
        return _Term(like.like(products.gram(graph, first, second)), x.labels[1] + y.labels[1])


def _times_small(term: _Term, small: _Term, output: str) -> _Term:
    """A term of the servers times one that the client keeps."""
    split, own = term.labels[0], term.labels[1:]
    if not small.labels:
        return _Term(term.array * small.array, term.labels)
    if own and own in small.labels and own not in output:
        other = small.labels.replace(own, "")
        matrix = small.array if small.labels[0] == own else transpose(small.array)
        return _Term(products.matmul(term.array, matrix), split + other)
    if small.labels == own:
        return _Term(term.array * small.array, term.labels)
    if not own and len(small.labels) == 1:
        column = reshape(term.array, (len(term.array), 1))
        return _Term(column * small.array, split + small.labels)
    raise NotImplementedError("einsum: the result would have more than two axes on the servers")


def _on_client(terms: Sequence[_Term], output: str) -> Any:
    """The product of what the client keeps."""
    if len(terms) == 1 and terms[0].labels == output:
        return terms[0].array
    like = terms[0].array
    extents = {
        label: extent
        for term in terms
        for label, extent in zip(term.labels, term.array.shape, strict=True)
    }
    dtype = np.result_type(*(term.array.dtype for term in terms))
    type = client_type(dtype, tuple(extents[label] for label in output))
    text = ",".join(term.labels for term in terms) + "->" + output
    with like.session.holders.lock:
        nodes = [term.array.node for term in terms]
        return like.like(
            shapes.on_client(like.session.graph, "client.einsum", nodes, type, (text,))
        )


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.einsum: einsum, np.einsum_path: einsum_path}
