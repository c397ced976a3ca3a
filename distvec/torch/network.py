"""A loss that is a network of PyTorch: objectives train it, and all solvers."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import scipy.sparse as sp
import torch
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase

from distvec.losses.field_aware import elements_by_field
from distvec.losses.labels import rule
from distvec.losses.loss import (
    Arrays,
    Loss,
    LossError,
    NotFinite,
    Parameter,
    Sums,
    loss_error,
    name_of_block,
)
from distvec.losses.rows import Floats, Rows, blocks
from distvec.losses.trees import sigmoid, softmax
from distvec.torch.optimizer import trained

Criterion: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_OF_CLASSES = "cross_entropy nll_loss multi_margin_loss CrossEntropyLoss NLLLoss MultiMarginLoss"
_OF_SIGNS = "binary_cross_entropy_with_logits BCEWithLogitsLoss"


@dataclass(frozen=True)
class Network(Loss):
    """Loss of a network of PyTorch, trained by any objective and solver.

    All parameters of the network are one vector, so they live on the servers as any other vector.
    With ``embedding_size`` each feature also has a row of a table on the servers, and the network
    gets the rows of the features that are not zero.

    Parameters
    ----------
    network : callable or torch.nn.Module
        A function without arguments that returns the module. It is called in each process, with
        the same random seed. A module is copied with its values.
    criterion : callable
        The loss of outputs and labels, such as ``torch.nn.functional.mse_loss`` or
        ``torch.nn.CrossEntropyLoss()``. Of your own function, the loss of each row.
    labels : {"real", "signs", "classes", "counts", "positive"}, optional
        The allowed labels. ``criterion`` gets 0 and 1 for ``"signs"``, two classes of any labels;
        and int64 for ``"classes"``. By default known for the losses of PyTorch, else ``"real"``.
    outputs : int, default 1
        The number of outputs of the network for a row. With 1 the column is left out: ``criterion``
        gets ``(rows,)``. For ``"classes"`` it is the number of classes.
    embedding_size : int, default 0
        The columns of the table of embeddings. The network then gets a tensor ``(rows, fields,
        embedding_size)``: for the k-th nonzero of a row, its number times the row of its feature.
        With 0 the network gets all features, ``(rows, features)``.
    fields : int, default 0
        The largest number of nonzeros in a row. The rest is filled up with zeros.
    spread : float, default 0.05
        Standard deviation of the random start of the embeddings.
    seed : int, default 0
        Seed of the random start of the network and the embeddings.

    Raises
    ------
    ValueError
        If the network has no parameters to train; if it has running means, which batches in
        several tasks would not share; if an argument is out of range.

    See Also
    --------
    distvec.spark.torch.TorchEstimator : The same as an estimator of Spark.
    distvec.losses.block_loss : Make a loss of a function of NumPy arrays.

    Notes
    -----
    Parameters are float64 on the servers, and have the dtype of the network in it. Parameters
    without ``requires_grad`` stay as the function made them. A module that draws random numbers,
    such as ``Dropout``, draws the same ones whenever an evaluation is repeated. The network
    computes on one thread of each process, so bits do not depend on the number of processors.

    Examples
    --------
    >>> import torch
    >>> from distvec.losses import Objective
    >>> from distvec.torch import Network
    >>> def network():
    ...     return torch.nn.Sequential(
    ...         torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    ...     ).double()
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0.0, 1.0, 1.0, 0.0]
    >>> loss = Network(network, torch.nn.functional.binary_cross_entropy_with_logits)
    >>> model = Objective((X, y), loss=loss, penalty=None).fit(max_iterations=100)
    >>> model.predict(X)
    array([0., 1., 1., 0.])
    """

    network: Callable[[], torch.nn.Module] | torch.nn.Module
    criterion: Criterion
    labels: str = ""  # type: ignore[misc]  # of each object, where other losses have it by class
    outputs: int = 1
    embedding_size: int = 0
    fields: int = 0
    spread: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.labels:
            object.__setattr__(self, "labels", _labels_of(self.criterion))
        rule(self.labels)
        for name, least in (("outputs", 1), ("embedding_size", 0), ("fields", 0), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r}; must be a whole number, {least} or more")
        if (self.fields > 0) != (self.embedding_size > 0):
            raise ValueError(
                f"fields={self.fields} and embedding_size={self.embedding_size}; give both, for a "
                "network over embeddings, or leave both out"
            )
        if not (np.isfinite(self.spread) and self.spread >= 0.0):
            raise ValueError(f"spread={self.spread!r}; must be a finite number, 0 or more")

    def bind(self, labels: Sequence[float]) -> Network:
        if self.labels != "classes" or self.outputs > 1:
            return self
        return replace(self, outputs=max(2, int(max(labels, default=0)) + 1))

    @property
    def takes_tables(self) -> bool:
        return not self.embedding_size

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        start = np.concatenate(
            [one.detach().cpu().numpy().ravel() for one in self._trained.values()], dtype=np.float64
        )
        if not self.embedding_size:
            return (Parameter("", takes_intercept=False, rows=start.size, start=start),)
        row = (self.embedding_size,)
        table = Parameter(
            "embeddings", row, takes_intercept=False, spread=self.spread, seed=self.seed
        )
        network = Parameter("network", takes_intercept=False, rows=start.size, start=start)
        return table, network

    def module(self, values: Any = None) -> torch.nn.Module:
        """Return the network.

        Parameters
        ----------
        values : array, optional
            The parameters, as one vector. By default the values at the start.

        Returns
        -------
        torch.nn.Module
            A new module.

        Examples
        --------
        >>> import torch
        >>> from distvec.torch import Network
        >>> loss = Network(lambda: torch.nn.Linear(3, 1), torch.nn.functional.mse_loss)
        >>> loss.module([1.0, 2.0, 3.0, 0.5])(torch.ones(1, 3)).item()
        6.5
        """
        made = self._made()
        if values is not None:
            flat = torch.from_numpy(np.array(values, np.float64))
            given = self._by_name(flat)
            with torch.no_grad():
                for name, one in made.named_parameters():
                    if name in given:
                        one.copy_(given[name])
        return made

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        if rows.offsets is not None:
            raise ValueError(f"{self} gets no offsets; give them as a feature")
        leaves = tuple(torch.tensor(np.asarray(one, np.float64)).requires_grad_() for one in arrays)
        total, seed = 0.0, crc32(arrays[-1].tobytes(), crc32(rows.labels.tobytes()))
        with _alone(), _seeded(seed):
            module = self._module.train()
            for number, part in enumerate(blocks(len(rows))):
                place = name_of_block(number, part)
                try:
                    outputs = self._outputs(module, rows[part], leaves)
                    losses = self._of_rows(outputs, self._targets(rows.labels[part], outputs))
                    value = self._sum(losses, rows, part)
                    value.backward()
                except LossError:
                    raise
                except Exception as error:
                    raise loss_error(str(self), place, error) from error
                if torch.isnan(value) and all(np.isfinite(one).all() for one in arrays):
                    bad = torch.isnan(losses.detach().reshape(losses.shape[0], -1)).any(dim=1)
                    row = part.start + int(bad.int().argmax())
                    raise NotFinite(str(self), place, f"the loss is NaN in row {row:,}")
                total += float(value.detach())
        gradients = tuple(
            np.zeros(one.shape) if one.grad is None else one.grad.numpy() for one in leaves
        )
        return Sums(total, rows.weight_sum, gradients)

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        shape = (len(rows),) if self.outputs == 1 else (len(rows), self.outputs)
        found = np.empty(shape)
        leaves = tuple(torch.tensor(np.asarray(one, np.float64)) for one in arrays)
        with _alone(), torch.no_grad():
            module = self._module.eval()
            for part in blocks(len(rows)):
                found[part] = self._outputs(module, rows[part], leaves).numpy()
        return found

    def probabilities(self, scores: Floats) -> Floats:
        if self.labels == "signs":
            positive = sigmoid(scores)
            return np.stack([1.0 - positive, positive], axis=1)
        if self.labels == "classes":
            return softmax(scores.T).T if len(scores) else scores
        return super().probabilities(scores)

    def predictions(self, scores: Floats) -> Floats:
        if self.labels == "classes":
            return np.asarray(scores.argmax(axis=1), np.float64)
        if self.labels == "signs" or self.outputs > 1:
            return super().predictions(scores)
        return scores

    def __str__(self) -> str:
        made = self.network
        name = getattr(made, "__name__", None) or type(made).__name__
        return f"Network({name})"

    __repr__ = __str__

    def __getstate__(self) -> dict[str, Any]:
        """Without the module: each process makes its own."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    # --- the module -------------------------------------------------------------------------------

    def _made(self) -> torch.nn.Module:
        if isinstance(self.network, torch.nn.Module):
            return copy.deepcopy(self.network)
        with _seeded(self.seed):
            made = self.network()
        if not isinstance(made, torch.nn.Module):
            raise TypeError(f"{self} returned {type(made).__name__}, not a torch.nn.Module")
        return made

    @cached_property
    def _module(self) -> torch.nn.Module:
        made = self._made()
        for name, one in made.named_modules():
            if isinstance(one, _NormBase) and one.track_running_stats:
                raise ValueError(
                    f"{self}: {name} is a {type(one).__name__} with running means, which tasks "
                    "would not share; use LayerNorm or GroupNorm, or track_running_stats=False"
                )
        if not trained(made):
            raise ValueError(f"{self} has no parameters to train")
        return made

    @cached_property
    def _of_rows(self) -> Criterion:
        return _without_mean(self.criterion)

    @cached_property
    def _trained(self) -> dict[str, torch.nn.Parameter]:
        named = self._module.named_parameters()
        return {name: one for name, one in named if one.requires_grad}

    def _by_name(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters of the vector by name, in the dtype of the network."""
        sizes = [one.numel() for one in self._trained.values()]
        each = zip(self._trained.items(), flat.split(sizes), strict=True)
        return {name: some.reshape(one.shape).to(one.dtype) for (name, one), some in each}

    def _outputs(
        self, module: torch.nn.Module, rows: Rows, leaves: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """The outputs of some rows, (rows,) or (rows, outputs)."""
        given = self._by_name(leaves[-1])
        found = functional_call(module, given, (self._inputs(rows, leaves),))
        wanted = (len(rows), self.outputs)
        if self.outputs == 1 and tuple(found.shape) in (wanted, wanted[:1]):
            return found.reshape(len(rows))
        if tuple(found.shape) != wanted:
            raise ValueError(
                f"the network returned the shape {tuple(found.shape)} for {len(rows)} rows; with "
                f"outputs={self.outputs} it must return {wanted}"
            )
        return found

    def _inputs(self, rows: Rows, leaves: tuple[torch.Tensor, ...]) -> torch.Tensor:
        dtype = next(iter(self._trained.values())).dtype
        if not self.embedding_size:
            matrix: Any = rows.matrix
            table = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            return torch.tensor(table, dtype=dtype)
        matrix = rows.matrix
        if isinstance(matrix, np.ndarray):
            matrix = sp.csr_array(matrix)
        _, columns, x = elements_by_field(matrix, self.fields)
        vectors = leaves[0][torch.from_numpy(columns)]
        return (vectors * torch.from_numpy(x)[:, :, None]).to(dtype)

    def _targets(self, labels: Floats, outputs: torch.Tensor) -> torch.Tensor:
        if self.labels == "classes":
            return torch.from_numpy(labels.astype(np.int64))
        if self.labels == "signs":
            labels = (labels > 0.0).astype(np.float64)
        return torch.tensor(labels, dtype=outputs.dtype)

    def _sum(self, losses: torch.Tensor, rows: Rows, part: slice) -> torch.Tensor:
        count = part.stop - part.start
        if not losses.ndim or losses.shape[0] != count:
            raise ValueError(
                f"the criterion returned the shape {tuple(losses.shape)} for {count} rows; it must "
                "return the loss of each row, without a mean"
            )
        each = losses.reshape(count, -1).mean(dim=1).double()
        if rows.weights is None:
            return each.sum()
        return (each * torch.tensor(rows.weights[part])).sum()


def _labels_of(criterion: Criterion) -> str:
    name = getattr(criterion, "__name__", type(criterion).__name__)
    if name in _OF_CLASSES.split():
        return "classes"
    return "signs" if name in _OF_SIGNS.split() else "real"


def _without_mean(criterion: Criterion) -> Criterion:
    """The same without a reduction over rows, if it is one of PyTorch."""
    if isinstance(criterion, torch.nn.Module):
        if hasattr(criterion, "reduction"):
            criterion = copy.copy(criterion)
            setattr(criterion, "reduction", "none")  # noqa: B010
        return criterion
    takes = "reduction" in inspect.signature(criterion).parameters
    return partial(criterion, **{"reduction": "none"}) if takes else criterion  # noqa: PIE804


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """PyTorch's random numbers begin at a seed, and the caller's go on afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a millisecond
        yield


_evaluating = threading.RLock()
"""The mode of a module, the random numbers and the number of threads are of the process."""


@contextmanager
def _alone() -> Iterator[None]:
    """One evaluation at a time, by one thread: tasks share the processors, and bits must not depend
    on how many there are."""
    with _evaluating:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
