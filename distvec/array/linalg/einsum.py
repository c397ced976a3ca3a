"""``einsum`` of vectors and tables, and products of more than two matrices; lazy.

Sums of products, written with the other operations. The label of the split axis divides the
operands: operands with the label are combined on the servers; the small rest is combined on the
client.
"""

from __future__ import annotations

import operator
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array import products
from distvec.array.core.handle import Casting, check_cast, express, make, stored_table
from distvec.array.core.keywords import store
from distvec.array.core.shapes import reshape
from distvec.array.elementwise import array_among
from distvec.array.reductions import sum
from distvec.array.transposed import redistribute, transpose
from distvec.graph import build
from distvec.graph.build import check_dtype
from ps_backend.program.types import client_type

_MORE_THAN_TWO = (
    "einsum: an intermediate product would have more than two axes on the servers; sum an operand "
    "first, or combine the operands in pairs"
)


@dataclass(slots=True)
class _Term:
    """An array and the labels of its axes."""

    array: Any
    labels: str

    @property
    def on_servers(self) -> bool:
        return not self.array.node.on_client


def einsum(
    *operands: Any, optimize: bool | str = False, dtype: npt.DTypeLike | None = None,
    order: str = "K", casting: Casting = "safe",
) -> Any:  # fmt: skip
    """Sum products of arrays by the Einstein summation convention.

    Parameters
    ----------
    *operands : str and arrays
        The subscripts, such as ``"ij,j->i"``, and one array of rank 0 to 2 for each term; at least
        one is a DistArray. Or each array followed by a list of integer labels, as in NumPy.
    optimize : bool or str, default False
        Accepted for compatibility with NumPy; has no effect.
    dtype : dtype, optional
        Dtype to cast the operands to first.
    order : str, default "K"
        Accepted for compatibility with NumPy; has no effect.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}, default "safe"
        Which casts to ``dtype`` are allowed.

    Returns
    -------
    DistArray
        Lazy result, of rank 2 at most.

    Raises
    ------
    ValueError
        If the subscripts do not fit the operands.
    NotImplementedError
        If an intermediate product on the servers would have more than two axes.
    TypeError
        If no operand is a DistArray.

    See Also
    --------
    numpy.einsum : The same function of arrays on the client.

    Notes
    -----
    No data moves between servers if each operand has the label of the split axis first. Other
    operands are redistributed.

    Examples
    --------
    >>> T = ps.array([[1.0, 2.0], [3.0, 4.0]])
    >>> dv.einsum("ij,ik->jk", T, T)
    DistArray([[10., 14.],
               [14., 20.]], dtype=float64, shape=(2, 2))
    """
    subscripts, given = _as_text(operands)
    like = stored_table(array_among("einsum", tuple(given)))
    arrays = [products.as_factor(like, one, "einsum") for one in given]
    if dtype is not None:
        arrays = [_cast(one, check_dtype(dtype), casting) for one in arrays]
    inputs, output = _parse(subscripts, [one.ndim for one in arrays])
    terms = [_term(array, labels) for array, labels in zip(arrays, inputs, strict=True)]
    terms = _without_stretched(terms)
    split = next((t.labels[0] for t in terms if t.on_servers and t.labels), "")
    result = _contract(terms, split, output) if split else _on_client(terms, output)
    # Sums of integers are wide until here; NumPy adds them up in their own dtype.
    return result.astype(np.result_type(*(term.array.dtype for term in terms)))


# --- the labels -----------------------------------------------------------------------------------


def _as_text(operands: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The subscripts as NumPy's first argument spells them, and the arrays."""
    if operands and isinstance(operands[0], str):
        return operands[0].replace(" ", ""), operands[1:]
    if len(operands) < 2:
        raise ValueError(
            "einsum: give subscripts and arrays, einsum('ij,j->i', T, v), or each array with a "
            "list of its labels, einsum(T, [0, 1], v, [1], [0])"
        )
    inputs = ",".join(map(_spell, operands[1::2]))
    if len(operands) % 2:
        return f"{inputs}->{_spell(operands[-1])}", operands[:-1:2]
    return inputs, operands[::2]


def _spell(labels: Any) -> str:
    """The labels of an axis list: ascending ones in the order of the alphabet, as NumPy's."""
    letters = string.ascii_uppercase + string.ascii_lowercase
    numbers = [one if one is Ellipsis else operator.index(one) for one in labels]
    if any(one is not Ellipsis and not 0 <= one < len(letters) for one in numbers):
        raise ValueError(f"einsum: labels must be 0 .. {len(letters) - 1} or ..., got {labels}")
    return "".join("..." if one is Ellipsis else letters[one] for one in numbers)


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The labels of each operand and of the result; those of an ellipsis are other letters."""
    given, arrow, output = subscripts.partition("->")
    inputs = given.split(",")
    if len(inputs) != len(ranks):
        raise ValueError(f"einsum: got {len(inputs)} subscripts for {len(ranks)} operands")
    unused = [one for one in string.ascii_letters if one not in subscripts]
    most = 0
    for place, (text, rank) in enumerate(zip(inputs, ranks, strict=True)):
        named = len(text.replace("...", ""))
        free = rank - named
        if free < 0 or (free and "..." not in text) or not _is_valid(text):
            raise ValueError(f"einsum: labels {text!r} do not fit an operand of rank {rank}")
        most = max(most, free)
        # Counted from the last one, as they stand beside each other.
        inputs[place] = text.replace("...", "".join(unused[:free][::-1]))
    labels = "".join(inputs)
    ellipsis = "".join(unused[:most][::-1])
    if not arrow:
        once = sorted(one for one in set(subscripts) if labels.count(one) == 1)
        output = ellipsis + "".join(once)
    elif not _is_valid(output) or (most and "..." not in output):
        raise ValueError(
            f"einsum: output {output!r} must have letters, and the ellipsis of the operands"
        )
    else:
        output = output.replace("...", ellipsis)
    if len(set(output)) < len(output) or not set(output) <= set(labels):
        raise ValueError(
            f"einsum: output {output!r} repeats a label, or has one that no operand has"
        )
    return inputs, output


def _is_valid(text: str) -> bool:
    """Whether these are letters, and an ellipsis at most."""
    letters = text.replace("...", "", 1)
    return not letters or (letters.isascii() and letters.isalpha())


def _cast(array: Any, dtype: np.dtype[Any], casting: Any) -> Any:
    check_cast(array.dtype, dtype, casting)
    return array.astype(dtype)


def _term(array: Any, labels: str) -> _Term:
    """An operand: of a label that it has twice, its diagonal."""
    if len(labels) == 2 and labels[0] == labels[1]:
        if array.shape[0] != array.shape[1]:
            raise ValueError(
                f"einsum: label {labels[0]!r} has two lengths, {array.shape[0]} and "
                f"{array.shape[1]}"
            )
        return _Term(np.diagonal(array), labels[0])
    if array.is_split_by_columns:
        return _Term(array.table, labels[::-1])
    return _Term(array, labels)


def _without_stretched(terms: Sequence[_Term]) -> list[_Term]:
    """``terms`` without the axes of length 1 that others have longer; errors as NumPy's."""
    extents: dict[str, int] = {}
    for term in terms:
        for label, extent in zip(term.labels, term.array.shape, strict=True):
            known = extents.setdefault(label, extent)
            if 1 not in (known, extent) and known != extent:
                raise ValueError(f"einsum: label {label!r} has two lengths, {known} and {extent}")
            extents[label] = extent if known == 1 else known

    def fitted(term: _Term) -> _Term:
        pairs = list(zip(term.labels, term.array.shape, strict=True))
        kept = [(label, extent) for label, extent in pairs if extent == extents[label]]
        if len(kept) == len(pairs):
            return term
        shape = tuple(extent for _, extent in kept)
        return _Term(reshape(term.array, shape), "".join(label for label, _ in kept))

    return [fitted(term) for term in terms]


# --- the sums -------------------------------------------------------------------------------------


def _contract(terms: Sequence[_Term], split: str, output: str) -> Any:
    """Combine what has the split label on the servers, with what else they need for it."""
    here = [_along(term, split) for term in terms if split in term.labels]
    space = next(term.array.space for term in here if term.on_servers)
    here = [_distribute(term, space) for term in here]
    small = [_collect(term) for term in terms if split not in term.labels]
    columns = sorted({label for term in here for label in term.labels[1:]})
    if split not in output and len(columns) == 2:
        first, second = (_product([t for t in here if label in t.labels]) for label in columns)
        weights = [term for term in here if len(term.labels) == 1]
        first = _product([first, *weights])
        return _on_client([_gram(first, second), *small], output)
    if len(columns) > 1:
        raise NotImplementedError(_MORE_THAN_TWO)
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
    raise NotImplementedError(
        f"einsum: output {output!r} is not supported on the servers; reorder its labels, or pull "
        "the operands: x.numpy()"
    )


def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """``numpy.einsum_path``: shapes alone say it."""
    subscripts, arrays = _as_text(operands)
    like = (np.broadcast_to(np.float64(), np.shape(one)) for one in arrays)
    return np.einsum_path(subscripts, *like, optimize=optimize)


def _along(term: _Term, split: str) -> _Term:
    """``term`` with the split axis first."""
    if term.labels[0] == split:
        return term
    if term.on_servers:
        return _Term(redistribute(term.array), term.labels[::-1])
    return _Term(transpose(term.array), term.labels[::-1])


def _distribute(term: _Term, space: Any) -> _Term:
    if term.on_servers:
        return term
    return _Term(express(term.array, build.put_on_servers, term.array, space), term.labels)


def _collect(term: _Term) -> _Term:
    return _Term(express(term.array, build.collect, term.array), term.labels)


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
    dtype = np.result_type(x.array.dtype, y.array.dtype)
    first, second = (term.array.astype(dtype) for term in (x, y))
    return _Term(express(x.array, products.gram, first, second), x.labels[1] + y.labels[1])


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
    raise NotImplementedError(_MORE_THAN_TWO)


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
    return make(like, "client.einsum", [term.array for term in terms], type, (text,))


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """The product of all, in the order that multiplies least: ``numpy.linalg.multi_dot``.

    The first and the last one may be vectors: a row, and a column.
    """
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    *before, last = arrays
    rows = len(arrays[0]) if arrays[0].ndim > 1 else 1
    columns = last.shape[-1] if last.ndim > 1 else 1
    best_cut = _best_cuts((rows, *(one.shape[-1] for one in before), columns))

    def product(first: int, last: int) -> Any:
        if first == last:
            return arrays[first]
        cut = best_cut(first, last)
        return product(first, cut) @ product(cut + 1, last)

    result = product(0, len(arrays) - 1)
    return store(out, result, "multi_dot", "no")


def _best_cuts(extents: Sequence[int]) -> Callable[[int, int], int]:
    """After which factor to cut a chain, by its first and last one; ``extents`` are between them.

    Source: the dynamic programme of Cormen et al., *Introduction to Algorithms*, section 15.2.
    """

    @cache
    def best(first: int, last: int) -> tuple[int, int]:
        """How many multiplications, and the cut."""
        if first == last:
            return 0, first
        return min(
            (best(first, cut)[0] + best(cut + 1, last)[0]
             + extents[first] * extents[cut + 1] * extents[last + 1], cut)
            for cut in range(first, last)
        )  # fmt: skip

    return lambda first, last: best(first, last)[1]


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """Solve ``numpy.linalg.tensorsolve`` for a matrix, as ``solve``."""
    if axes is not None or np.ndim(b) != 1:
        raise NotImplementedError(
            "tensorsolve: arrays have at most 2 axes; write numpy.linalg.solve(A, b)"
        )
    return np.linalg.solve(a, b)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """Invert as ``numpy.linalg.tensorinv``, for a matrix, as ``inv``."""
    if ind != 1:
        raise NotImplementedError(
            f"tensorinv: ind must be 1, as arrays have at most 2 axes; got {ind}; write "
            f"numpy.linalg.inv(A)"
        )
    return np.linalg.inv(a)
