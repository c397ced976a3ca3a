"""Optimizer steps of a model on the servers: tables of its layers, and its own parameters."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from distvec.keyed.array import KeyedArray, RowView, in_background
from distvec.rows.optimizers import RowOptimizer
from distvec.session import Session
from distvec.torch.embedding import TableLayer, by_table

COLUMNS = 64
"""Parameters in a row of the table that has all of them."""


def dense_table(model: torch.nn.Module, ps: Session, optimizer: RowOptimizer) -> KeyedArray:
    """Copy the parameters of a model to the servers, as one table.

    Processes that train the model together share the table: see ``Optimizer``.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Parameters with ``requires_grad`` are copied, all of one dtype.
    ps : Session
        The session of the servers.
    optimizer : RowOptimizer
        The steps of the parameters, such as ``dv.rows.adam(1e-3)``; one that treats each element
        alike, not ``rowwise_adagrad`` or ``group_ftrl``.

    Returns
    -------
    KeyedArray
        The table, with 64 parameters in a row.

    Raises
    ------
    ValueError
        If the model has no parameters, or they have several dtypes.

    Examples
    --------
    >>> import torch
    >>> from distvec.torch import dense_table
    >>> dense_table(torch.nn.Linear(100, 10), ps, dv.rows.adam(1e-3)).row
    (64,)
    """
    parameters = trained(model)
    kinds = {str(one.dtype).removeprefix("torch.") for one in parameters}
    if not parameters:
        raise ValueError("the model has no parameters to train")
    if len(kinds) > 1:
        raise ValueError(
            f"the parameters of the model have the dtypes {', '.join(sorted(kinds))}; a table "
            "needs one dtype"
        )
    rows = -(-sum(one.numel() for one in parameters) // COLUMNS)
    table = ps.keys(range(rows)).table(COLUMNS, dtype=kinds.pop())
    table.assign(np.arange(rows), as_rows(parameters_to_vector(parameters).detach()))
    table.optimizer(optimizer)
    return table


class Optimizer:
    """Takes the steps of a model on the servers.

    Each table takes one step of its own optimizer (``table.optimizer``) with the gradients of all
    layers that use it.

    Parameters
    ----------
    model : torch.nn.Module
        The model, with layers such as ``Embedding``.
    dense : KeyedArray, optional
        The table that ``dense_table`` returned for this model. The model gets its values, now
        and after each step. By default the parameters of the model are trained by an
        optimizer of PyTorch, beside this one.

    Raises
    ------
    TypeError
        If a table has no optimizer.
    ValueError
        If the model has no layer with a table, or ``dense`` belongs to another model.

    Notes
    -----
    Several processes may train together, each with its own copy of the model and the same tables.
    The gradients of each process take steps of their own as they come.

    Examples
    --------
    >>> import torch
    >>> from distvec.torch import Embedding, Optimizer, dense_table
    >>> table = ps.keys().table(4, init=dv.uniform(-0.1, 0.1, seed=7))
    >>> _ = table.optimizer(dv.rows.adagrad(0.1))
    >>> model = torch.nn.Sequential(Embedding(table), torch.nn.Linear(4, 1))
    >>> optimizer = Optimizer(model, dense=dense_table(model, ps, dv.rows.adam(0.01)))
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     loss = model(torch.tensor([17, 2**40])).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    >>> len(table.space)
    2
    """

    def __init__(self, model: torch.nn.Module, *, dense: KeyedArray | None = None) -> None:
        self._layers = [one for one in model.modules() if isinstance(one, TableLayer)]
        if not self._layers and dense is None:
            raise ValueError(
                "the model has no layer with a table; add distvec.torch.Embedding, or give dense="
            )
        for table in [layer.table for layer in self._layers]:
            if table.trained is None:
                raise TypeError(
                    f"{table!r} has no optimizer; set one: table.optimizer(dv.rows.adagrad(0.05))"
                )
        self._parameters = trained(model)
        self._dense: RowView | None = None
        if dense is not None:
            wanted = -(-sum(one.numel() for one in self._parameters) // COLUMNS)
            if dense.row != (COLUMNS,) or len(dense.space) != wanted:
                raise ValueError(
                    f"the parameters of this model need {wanted} rows of {COLUMNS}, and dense is "
                    f"{dense!r}; make it with dense_table(model, ps, optimizer)"
                )
            self._dense = dense.at(np.arange(wanted))
            self.pull()

    def step(self) -> None:
        """Take one step of each table, and of the dense parameters, which are pulled again.

        Notes
        -----
        One request per server for each table; all of them travel at the same time. If one fails,
        its error is raised when the others are done. Gradients are gone afterwards.
        """
        steps: list[Future[Any]] = []
        for table, layers in by_table(self._layers):
            taken = [pair for layer in layers for pair in layer.take_gradients()]
            if taken:
                keys = np.concatenate([some for some, _ in taken])
                gradients = torch.cat([some for _, some in taken]).cpu().numpy()
                steps.append(in_background(partial(table.step, keys, gradients)))
        view = self._dense
        if view is not None:
            steps.append(in_background(partial(view.step, as_rows(_gradients(self._parameters)))))
        errors = [error for one in steps if (error := one.exception()) is not None]
        if errors:
            raise errors[0]
        if view is not None:
            self.pull()

    def zero_grad(self) -> None:
        """Forget all gradients of the layers and of the parameters."""
        for layer in self._layers:
            layer.take_gradients()
        for one in self._parameters:
            one.grad = None

    def pull(self) -> None:
        """Read the dense parameters from the servers into the model; one request per server."""
        if self._dense is not None:
            count = sum(one.numel() for one in self._parameters)
            values = torch.from_numpy(self._dense.pull()).reshape(-1)[:count]
            with torch.no_grad():
                vector_to_parameters(values.to(self._parameters[0].device), self._parameters)


def trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters that steps change."""
    return [one for one in model.parameters() if one.requires_grad]


def as_rows(values: torch.Tensor) -> Any:
    """Return a vector as rows of a table, the last one filled up with zeros."""
    flat = values.cpu().numpy()
    filled = np.zeros((-(-len(flat) // COLUMNS), COLUMNS), flat.dtype)
    filled.reshape(-1)[: len(flat)] = flat
    return filled


def _gradients(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
    """Return all gradients as a vector; zeros of parameters that the loss did not depend on."""
    found = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    return torch.cat([one.reshape(-1) for one in found])
