"""The largest eigenvalues of a symmetric operator, by block Lanczos with restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_MOST_BLOCKS = 8
"""Blocks of the basis; then it is replaced by the best vectors in it."""

_ROUNDING = 1e-14
"""So much of a column is rounding."""


class EigenPairs(NamedTuple):
    """The result of ``largest_eigenpairs``.

    Attributes
    ----------
    values : ndarray
        Eigenvalues, the largest first.
    vectors : array
        Orthonormal eigenvectors, one per column, of the kind of ``start``.
    products : int
        Number of products with blocks.
    residual : float
        Largest norm of ``A v - value v`` among the pairs.
    converged : bool
        Whether ``residual`` is at most the tolerance times the largest absolute eigenvalue.
    """

    values: np.ndarray[Any, np.dtype[np.float64]]
    vectors: Any
    products: int
    residual: float
    converged: bool


def largest_eigenpairs(
    product: Callable[[Any], Any],
    start: Any,
    count: int,
    *,
    tolerance: float = 1e-9,
    max_products: int = 100,
) -> EigenPairs:
    """Compute the largest eigenvalues of a symmetric operator, with their eigenvectors.

    Parameters
    ----------
    product : callable
        ``product(V)`` returns the operator times each column of the table ``V``.
    start : array of shape (n, m)
        Initial vectors with ``m >= count``, such as random numbers. Some more than ``count`` save
        products.
    count : int
        Number of eigenvalues.
    tolerance : float, default 1e-9
        Accuracy: the largest residual norm, relative to the largest absolute eigenvalue.
    max_products : int, default 100
        Maximum number of calls of ``product``.

    Returns
    -------
    EigenPairs
        Values, vectors, and whether they are accurate.

    Raises
    ------
    ValueError
        If ``start`` is no table, or has fewer columns than ``count``.

    Notes
    -----
    Tables may be on parameter servers. Only products of two blocks, of ``m * m`` numbers, come to
    the caller. The basis has at most eight blocks.

    References
    ----------
    G. H. Golub, R. Underwood, "The block Lanczos method for computing eigenvalues", 1977.

    K. Wu, H. Simon, "Thick-restart Lanczos method for large symmetric eigenvalue problems", 2000.

    Examples
    --------
    >>> from optim import largest_eigenpairs
    >>> A = np.diag([1.0, 5.0, 3.0, 2.0])
    >>> found = largest_eigenpairs(lambda V: A @ V, np.eye(4)[:, :2] + 0.1, 2)
    >>> found.values.round(6)
    array([5., 3.])
    """
    if start.ndim != 2 or not 0 < count <= start.shape[1]:
        raise ValueError(
            f"start has shape {start.shape}; it must be a table with at least count={count} columns"
        )
    basis, block = _Basis(), _Block.orthonormal(start, [])
    for products in range(1, max_products + 1):  # noqa: B007 it is returned
        basis.add(block, product(block.vectors))
        values, mix = basis.ritz()
        best = mix[:, :count]
        vectors, image = basis.mixed(best)
        residuals = image - vectors * values[:count]
        norm = float(np.sqrt(np.asarray((residuals * residuals).sum(axis=0)).max()))
        accurate = norm <= tolerance * float(np.abs(values).max())
        block = _Block.orthonormal(basis.images[-1], basis.blocks)
        if accurate or not block.used.any():
            break
        if len(basis.blocks) == _MOST_BLOCKS:
            basis = basis.restarted(mix[:, : 2 * start.shape[1]])
    return EigenPairs(values[:count], vectors, products, norm, accurate)


class _Block(NamedTuple):
    """Orthonormal columns, and zeros in the place of those that others span."""

    vectors: Any
    used: np.ndarray[Any, np.dtype[np.bool_]]

    @classmethod
    def orthonormal(cls, vectors: Any, others: list[_Block]) -> _Block:
        """A basis of what ``vectors`` span beside ``others``, by products of tables alone.

        Twice: the first pass leaves rounding errors where little of a column remains. (A.
        Stathopoulos, K. Wu, "A block orthogonalization procedure with constant synchronization
        requirements", 2002.)
        """
        for _ in range(2):
            lengths = np.sqrt(np.diag(np.asarray(vectors.T @ vectors)))
            for other in others:
                vectors = vectors - other.vectors @ (other.vectors.T @ vectors)
            gram = np.asarray(vectors.T @ vectors)
            is_left = np.sqrt(np.diag(gram)) > _ROUNDING * lengths
            scale = np.where(is_left, 1.0 / np.sqrt(np.where(is_left, np.diag(gram), 1.0)), 0.0)
            sizes, turns = np.linalg.eigh(gram * np.outer(scale, scale))
            used = sizes > _ROUNDING * len(sizes)
            factors = np.where(used, 1.0 / np.sqrt(np.where(used, sizes, 1.0)), 0.0)
            vectors = vectors @ (scale[:, None] * turns * factors)
        return cls(vectors, used)


class _Basis:
    """Blocks, and the operator times each of them."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.images: list[Any] = []

    def add(self, block: _Block, image: Any) -> None:
        self.blocks.append(block)
        self.images.append(image)

    def ritz(self) -> tuple[Any, Any]:
        """Eigenvalues of the operator within the basis, the largest first, and their vectors."""
        projected = np.block(
            [[np.asarray(one.vectors.T @ image) for image in self.images] for one in self.blocks]
        )
        used = np.concatenate([one.used for one in self.blocks])
        small = projected[np.ix_(used, used)]
        values, turns = np.linalg.eigh((small + small.T) / 2)
        mix = np.zeros((used.size, values.size))
        mix[used] = turns[:, ::-1]
        return values[::-1], mix

    def mixed(self, mix: Any) -> tuple[Any, Any]:
        """The columns of all blocks times ``mix``, and the operator times that."""
        ends = np.cumsum([one.used.size for one in self.blocks])
        parts = np.split(np.ascontiguousarray(mix), ends[:-1])
        vectors = [one.vectors @ part for one, part in zip(self.blocks, parts, strict=True)]
        images = [one @ part for one, part in zip(self.images, parts, strict=True)]
        return _sum(vectors), _sum(images)

    def restarted(self, mix: Any) -> _Basis:
        """The basis of the best vectors in this one."""
        made, width = _Basis(), self.blocks[0].used.size
        for start in range(0, mix.shape[1], width):
            part = mix[:, start : start + width]
            vectors, image = self.mixed(part)
            made.add(_Block(vectors, np.ones(part.shape[1], bool)), image)
        return made


def _sum(tables: list[Any]) -> Any:
    found = tables[0]
    for one in tables[1:]:
        found = found + one
    return found
