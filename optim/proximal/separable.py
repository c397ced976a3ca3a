"""A penalty, or a set, for each of several arrays of parameters.

N. Parikh, S. Boyd, Proximal Algorithms (2014), section 2.1: a separable sum has the proximal
operator of each term on its own part.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from optim.core.arrays import Array, Scalar
from optim.core.trees import Tree, lift
from optim.proximal.operators import Proximal, check_proximal
from optim.proximal.projections import ConvexSet


@dataclass(frozen=True)
class Separable(Proximal):
    """The sum of a penalty for each array, or part, of the parameters.

    Solvers make it from a structure that is given as a penalty or projection.

    Parameters
    ----------
    terms : dict, tuple or list
        A `Proximal` for each array, in the structure of x; ``None`` for an array without a penalty:
        ``{"w": L1Norm(0.1), "V": GroupLasso(labels, 8), "bias": None}``.

    Examples
    --------
    >>> penalty = optim.Separable({"w": optim.L1Norm(1.0), "V": None})
    >>> solver = optim.ProximalGradient(penalty=penalty)
    >>> def fun(x):
    ...     w, V = x["w"] - 3, x["V"] - 3
    ...     return 0.5 * float(w @ w + V @ V), {"w": w, "V": V}
    >>> result = solver.minimize(fun, {"w": np.zeros(2), "V": np.zeros(1)})
    >>> np.round(result.x["w"], 6), np.round(result.x["V"], 6)
    (array([2., 2.]), array([3.]))
    """

    terms: Mapping[Any, Any] | Sequence[Any]

    def __post_init__(self) -> None:
        keys = list(self.terms) if isinstance(self.terms, Mapping) else range(len(self.terms))
        for key in keys:
            if not _is_terms(self.terms[key]) and self.terms[key] is not None:
                check_proximal(self, f"[{key!r}]", self.terms[key])

    def value(self, x: Array) -> Scalar:
        """Sum the penalties of the arrays."""
        values = [term.value(part) for term, part in self._terms_of(x) if term is not None]
        return reduce(operator.add, values, 0.0)

    def prox(self, x: Array, step: float) -> Array:
        """Evaluate the proximal operator of each array's penalty."""
        pairs = self._terms_of(x)
        return x.joined(part if term is None else term.prox(part, step) for term, part in pairs)

    def feasible(self, x: Array) -> Array:
        """Return each array in the domain of its penalty."""
        pairs = self._terms_of(x)
        return x.joined(part if term is None else term.feasible(part) for term, part in pairs)

    def __call__(self, x: Array) -> Array:
        """Project `x`, if all terms are sets."""
        return self.feasible(x)

    def _terms_of(self, x: Array) -> Iterator[tuple[Proximal | None, Array]]:
        if not isinstance(x, Tree):
            raise TypeError(
                f"{type(self).__name__} is for parameters in several arrays, but x is one array of "
                f"shape {tuple(x.shape)}; give the penalty itself"
            )
        terms = x.structure.values(self.terms, "the penalty")
        own = (Separable(term) if _is_terms(term) else term for term in terms)
        return zip(own, x.parts(), strict=True)


def adopt_proximal(owner: object, name: str) -> None:
    """Let a parameter of a frozen `owner` be a `Proximal`, or one for each array in a structure."""
    given = getattr(owner, name)
    if _is_terms(given):
        object.__setattr__(owner, name, Separable(given))
    else:
        check_proximal(owner, name, given)


def adopt_projection(owner: Any) -> None:
    """The same for its `projection`: a set, one for each array, or a user's function."""
    given = owner.projection
    if _is_terms(given):
        _check_sets(owner, given, "projection")
        given = Separable(given)
    elif not callable(given) or isinstance(given, type):
        raise TypeError(
            f"{type(owner).__name__}(projection={given!r}): must be a function of a vector; give "
            "for instance Box(0.0, 1.0), Simplex(), or lambda x: x for no constraint"
        )
    elif not isinstance(given, Proximal):
        given = lift(given, "projection(x)")
    object.__setattr__(owner, "projection", given)


def _check_sets(owner: object, given: Any, name: str) -> None:
    for key in given if isinstance(given, Mapping) else range(len(given)):
        part, place = given[key], f"{name}[{key!r}]"
        if _is_terms(part):
            _check_sets(owner, part, place)
        elif part is not None and not isinstance(part, ConvexSet):
            raise TypeError(
                f"{type(owner).__name__}({place}={part!r}): must be a ConvexSet, such as "
                "Box(0.0, 1.0), or None; or give one function of all arrays"
            )


def _is_terms(given: Any) -> bool:
    return isinstance(given, (Mapping, tuple, list))
