"""A user's loss of one margin a row: a function of margins and labels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, overload

import numpy as np

from distvec.autodiff.forward import derivatives
from distvec.losses.labels import rule
from distvec.losses.one_margin import RowLoss
from distvec.losses.rows import Floats

_A_LABEL = {"signs": 1.0, "classes": 0.0, "real": 0.25, "counts": 1.0, "positive": 1.5}


@dataclass(frozen=True)
class UserRowLoss(RowLoss):
    """What ``row_loss`` makes of a function. Called with the function's further parameters it is
    the same loss with those: ``my_loss(delta=0.5)``."""

    function: Callable[..., Any]
    labels: str = "real"  # type: ignore[misc]  # of each object, where other losses have it by class
    arguments: Mapping[str, Any] = field(default_factory=dict)
    _is_differentiated: bool = field(default=False, init=False, repr=False, compare=False)
    """Set at the first call, which says so."""

    def __post_init__(self) -> None:
        rule(self.labels)
        object.__setattr__(self, "__doc__", self.function.__doc__)

    def __call__(self, **arguments: Any) -> UserRowLoss:
        """The loss with these arguments in place of defaults. TypeError for others."""
        arguments = {**self.arguments, **arguments}
        try:
            inspect.signature(self.function).bind(None, None, **arguments)
        except TypeError as error:
            raise TypeError(f"the loss {_name(self.function)}: {error}") from None
        return replace(self, arguments=arguments)

    def row(self, margins: Floats, labels: Floats) -> tuple[Any, Any]:
        """What the function returns; or its values, and their derivative by forward mode."""
        if not self._is_differentiated:
            given = self.function(margins, labels, **self.arguments)
            if isinstance(given, tuple) or np.shape(given) != margins.shape:
                return given  # type: ignore[no-any-return]  # looked at where it is used
            object.__setattr__(self, "_is_differentiated", True)
        values, slopes = derivatives(self._of_margins, margins, labels)
        return values, slopes

    @property
    def has_products(self) -> bool:
        """Whether the function returns values alone, which have second derivatives as well: seen
        by calling it with one row. What it raises is said where it meets rows."""
        one = np.array([0.625]), np.array([_A_LABEL[self.labels]])
        with suppress(Exception):
            self.row(*one)
            return self._is_differentiated and self.curvature(*one).size == 1
        return False

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """The second derivative by forward mode."""
        return derivatives(self._of_margins, margins, labels, order=2)[2]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return _name(self.function) + (f"({given})" if given else "")

    __repr__ = __str__

    @property
    def _of_margins(self) -> Callable[..., Any]:
        return partial(self.function, **self.arguments)


def _name(function: Any) -> str:
    return getattr(function, "__name__", None) or repr(function)


@overload
def row_loss(function: Callable[..., Any], /) -> UserRowLoss: ...
@overload
def row_loss(*, labels: str = "real") -> Callable[[Callable[..., Any]], UserRowLoss]: ...
def row_loss(function: Callable[..., Any] | None = None, /, *, labels: str = "real") -> Any:
    """A loss of your own: ``function(margins, labels) -> (values, slopes)``, an array each.

        @row_loss
        def cauchy(margins, labels):
            residuals = margins - labels
            return np.log1p(residuals**2), 2 * residuals / (1 + residuals**2)

    Arrays are float64, ``(rows,)``; the slopes are derivatives by the margin. They may be left out
    where the function is written in NumPy's elementwise operations (``return np.log1p(...)``): then
    they are derived, and so are second derivatives for products with the Hessian. Further
    parameters are of the loss: of ``def huber(margins, labels, delta=1.0)`` there is
    ``huber(delta=0.5)``.

    labels  which labels there may be: "real" numbers; "signs", +1 and -1 for two classes (whatever
            these are in the data); "classes" 0, 1, ...; "counts", 0 or more; "positive"

    What it raises, and wrong shapes, become a LossError that names the rows. It travels to Spark's
    tasks by value, as functions of a notebook do. ``check_loss`` compares slopes with differences.
    """
    if function is None:
        return partial(UserRowLoss, labels=labels)
    return UserRowLoss(function, labels)
