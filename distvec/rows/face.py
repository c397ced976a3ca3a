"""``dv.rows``: a decorator, and beside it what row functions and tables of rows take."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distvec.array.random import uniform_at
from distvec.rows import updates
from distvec.rows.function import RowFunction
from distvec.rows.kinds import Number, PerKey, RowsOf
from distvec.rows.plugin import plugin

if TYPE_CHECKING:
    from distvec.rows import optimizers

OPTIMIZERS = (
    *("sgd", "momentum", "adagrad", "rowwise_adagrad", "adam"),
    *("ftrl", "group_ftrl", "rmsprop", "adadelta"),
)
"""The functions of ``distvec.rows.optimizers``."""


class Rows:
    """As a decorator it makes a function one of rows, which servers run on those of chosen keys.

        @dv.rows
        def adagrad(w, squares, gradient, step_size):
            squares = squares + gradient * gradient
            return {"w": w - step_size * gradient / np.sqrt(squares), "squares": squares}

    The function is written with NumPy's operations, of the rows of ``n`` keys: ``(n,)`` or
    ``(n, k)``. It runs here, once for each signature, on what only stands for them. It returns new
    rows by the name of the argument that they are of (or ``dv.rows.add(...)``, ``min``, ``max`` of
    what is joined to the rows there), or values per key, or ``(updates, values)``. An argument
    called ``keys`` gets these.

    Beside it are the row optimizers, as in ``table.optimizer(dv.rows.adagrad(0.05))``, and
    ``plugin``, functions that the servers' operator has loaded.
    """

    RowsOf, PerKey, Number = RowsOf, PerKey, Number
    replace, add = staticmethod(updates.replace), staticmethod(updates.add)
    min, max = staticmethod(updates.min), staticmethod(updates.max)
    random = staticmethod(uniform_at)

    plugin = staticmethod(plugin)

    if TYPE_CHECKING:
        sgd, momentum = staticmethod(optimizers.sgd), staticmethod(optimizers.momentum)
        adagrad, adam = staticmethod(optimizers.adagrad), staticmethod(optimizers.adam)
        rowwise_adagrad = staticmethod(optimizers.rowwise_adagrad)
        ftrl, group_ftrl = staticmethod(optimizers.ftrl), staticmethod(optimizers.group_ftrl)
        rmsprop, adadelta = staticmethod(optimizers.rmsprop), staticmethod(optimizers.adadelta)
    else:

        def __getattr__(self, name: str) -> Any:
            """An optimizer: imported when it is asked for, as ``optim`` imports SciPy's."""
            if name in OPTIMIZERS:
                return getattr(import_module("distvec.rows.optimizers"), name)
            raise AttributeError(f"dv.rows has no {name!r}, but {', '.join(dir(self))}")

    def __dir__(self) -> list[str]:
        own = [name for name in vars(type(self)) if not name.startswith("_")]
        return sorted({*own, *OPTIMIZERS})

    def __call__(self, function: Callable[..., Any]) -> RowFunction:
        """``function`` as one of rows. ``TypeError`` if its number of arguments is not fixed."""
        return RowFunction(function)

    def __repr__(self) -> str:
        return "<dv.rows: @dv.rows makes a function one of rows>"


rows = Rows()
