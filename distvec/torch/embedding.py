"""Layers that look up rows of keyed tables, and queue the gradients of these rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from distvec.keyed.array import KeyedArray
from distvec.keyed.row_call import as_keys

Keys = npt.NDArray[np.int64]

MODES = ("mean", "sum", "max")


class _Prefetched(NamedTuple):
    """Rows on their way."""

    keys: Keys
    """In order, each once."""
    rows: Future[npt.NDArray[Any]]


class TableLayer(torch.nn.Module):
    """A layer over a table.

    The layer has no parameters of its own. A forward pass pulls the rows that it needs. The
    gradients of these rows wait in the layer for ``Optimizer.step``.
    """

    def __init__(self, table: KeyedArray) -> None:
        if not isinstance(table, KeyedArray) or len(table.row) != 1 or table.dtype.kind != "f":
            raise TypeError(
                f"table is {table!r}; a layer needs a keyed table of floats: "
                "ps.keys().table(16, init=dv.uniform(-0.05, 0.05))"
            )
        super().__init__()
        self.table = table
        self._queue: list[tuple[Keys, torch.Tensor]] = []
        self._prefetched: _Prefetched | None = None

    @property
    def embedding_dim(self) -> int:
        """Return the length of a row.

        Returns
        -------
        int
            The number of columns of the table.
        """
        return int(self.table.row[0])

    def extra_repr(self) -> str:
        """Return the table, for ``print(model)``."""
        return repr(self.table)

    def materialize(self, keys: npt.ArrayLike) -> torch.nn.Embedding:
        """Return a layer of PyTorch with a copy of some rows, for use without servers.

        Parameters
        ----------
        keys : array_like of int or str
            Keys, shape ``(n,)``. Row ``i`` of the result belongs to ``keys[i]``.

        Returns
        -------
        torch.nn.Embedding
            The layer, with ``n`` rows.
        """
        rows = torch.from_numpy(self.table.pull(keys))
        return torch.nn.Embedding.from_pretrained(rows, freeze=False)

    def take_gradients(self) -> list[tuple[Keys, torch.Tensor]]:
        """Return the keys and gradients of all backward passes since the last call."""
        taken, self._queue = self._queue, []
        return taken

    def _look_up(self, keys: Keys, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows of the keys, each once, and the index of each key among them."""
        unique, inverse = np.unique(keys, return_inverse=True)
        rows = torch.from_numpy(self._pull(unique)).to(device)
        if torch.is_grad_enabled():
            rows.requires_grad_()
            rows.register_post_accumulate_grad_hook(partial(self._note, unique))
        return rows, torch.from_numpy(inverse).to(device)

    def _pull(self, keys: Keys) -> npt.NDArray[Any]:
        ahead, self._prefetched = self._prefetched, None
        if ahead is not None:
            places = np.searchsorted(ahead.keys, keys)
            if len(ahead.keys) and (ahead.keys.take(places, mode="clip") == keys).all():
                return ahead.rows.result()[places]
        pulled: npt.NDArray[Any] = self.table.pull(keys)
        return pulled

    def _note(self, keys: Keys, rows: torch.Tensor) -> None:
        assert rows.grad is not None
        self._queue.append((keys, rows.grad))
        rows.grad = None  # another backward pass adds to the queue, not to this gradient


class Embedding(TableLayer):
    """Look up the row of each key in a table on the servers.

    Like ``torch.nn.Embedding`` for any int64 keys, strings or tuples, with a table that may be
    larger than the memory of this process.

    Parameters
    ----------
    table : KeyedArray
        The table. Layers may share one.

    See Also
    --------
    EmbeddingBag : Reduce the rows of several keys.
    Optimizer : Train the tables of all layers of a model.

    Examples
    --------
    >>> import torch
    >>> from distvec.torch import Embedding
    >>> users = Embedding(ps.keys().table(4, init=dv.uniform(-0.1, 0.1, seed=7)))
    >>> users(torch.tensor([[17, 5], [17, 2**40]])).shape
    torch.Size([2, 2, 4])
    >>> users(["user=ada", "user=bob"]).shape
    torch.Size([2, 4])
    """

    def forward(self, keys: Any) -> torch.Tensor:
        """Return the rows of ``keys``; one request per server.

        Parameters
        ----------
        keys : Tensor or array_like of int, or sequence of str
            The keys, of any shape if they are integers.

        Returns
        -------
        Tensor
            Shape ``(*keys.shape, embedding_dim)``.
        """
        shape = tuple(keys.shape) if hasattr(keys, "shape") else np.shape(keys)[:1]
        rows, index = self._look_up(flat_keys(keys), device_of(keys))
        return functional.embedding(index, rows).reshape(*shape, self.embedding_dim)


class EmbeddingBag(TableLayer):
    """Reduce the rows of the keys of each bag, from a table on the servers.

    Like ``torch.nn.EmbeddingBag``; the rows of all bags are pulled by one request per server.

    Parameters
    ----------
    table : KeyedArray
        The table. Layers may share one.
    mode : {"mean", "sum", "max"}, default "mean"
        The reduction of the rows of a bag.

    See Also
    --------
    Embedding : Look up one row for each key.

    Examples
    --------
    >>> import torch
    >>> from distvec.torch import EmbeddingBag
    >>> tags = EmbeddingBag(ps.keys().table(4), mode="sum")
    >>> tags([["red", "wool"], [], ["silk"]]).shape
    torch.Size([3, 4])
    """

    def __init__(self, table: KeyedArray, mode: str = "mean") -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        super().__init__(table)
        self.mode = mode

    def forward(
        self,
        keys: Any,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the reduced rows of each bag; one request per server.

        Parameters
        ----------
        keys : Tensor, array_like of int, or sequence of sequences
            Bags of equal length, shape ``(bags, length)``; a sequence of bags of any length; or
            with ``offsets`` the keys of all bags, shape ``(n,)``.
        offsets : Tensor of int, optional
            Index of the first key of each bag.
        per_sample_weights : Tensor, optional
            A factor for each key, in the order of the keys; only for ``mode="sum"``.

        Returns
        -------
        Tensor
            Shape ``(bags, embedding_dim)``; zeros for an empty bag.

        Raises
        ------
        ValueError
            If the keys are no bags.
        """
        device = device_of(keys)
        if offsets is None:
            lengths = bag_lengths(keys)
            begins = np.zeros(len(lengths), np.int64)
            np.cumsum(lengths[:-1], out=begins[1:])
            offsets = torch.from_numpy(begins)
        rows, index = self._look_up(flat_keys(keys), device)
        if not len(index):
            return rows.new_zeros(len(offsets), self.embedding_dim)
        weights = None if per_sample_weights is None else per_sample_weights.reshape(-1).to(rows)
        return functional.embedding_bag(
            index, rows, offsets.to(device), mode=self.mode, per_sample_weights=weights
        )

    def extra_repr(self) -> str:
        """Return the table and the reduction, for ``print(model)``."""
        return f"{self.table!r}, mode={self.mode!r}"


def prefetch(keys: Mapping[TableLayer, Any]) -> None:
    """Pull rows for the next forward pass of some layers, while this thread computes.

    Parameters
    ----------
    keys : mapping of layer to keys
        The keys that each layer will get, in a form that it takes.

    Notes
    -----
    One request per server for each table; all of them travel at the same time. The rows lack the
    steps that are taken meanwhile. A layer that then gets other keys pulls their rows itself.

    Examples
    --------
    >>> import torch
    >>> from distvec.torch import Embedding, prefetch
    >>> table = ps.keys().table(4)
    >>> users, friends = Embedding(table), Embedding(table)
    >>> prefetch({users: [1, 2], friends: [2, 3]})  # one request per server
    >>> (users([1, 2]) + friends([2, 3])).shape
    torch.Size([2, 4])
    """
    wanted = {layer: flat_keys(given) for layer, given in keys.items()}
    for table, layers in by_table(wanted):
        together = np.unique(np.concatenate([wanted[layer] for layer in layers]))
        rows = table.prefetch(together)
        for layer in layers:
            layer._prefetched = _Prefetched(together, rows)


def by_table(layers: Iterable[TableLayer]) -> list[tuple[KeyedArray, list[TableLayer]]]:
    """Return each table with its layers."""
    found: dict[int, tuple[KeyedArray, list[TableLayer]]] = {}
    for layer in layers:
        found.setdefault(layer.table.number, (layer.table, []))[1].append(layer)
    return list(found.values())


def flat_keys(keys: Any) -> Keys:
    """Return the int64 keys of a tensor, an array, a list, or a list of bags."""
    if isinstance(keys, torch.Tensor):
        keys = keys.detach().cpu().numpy()
    if isinstance(keys, np.ndarray) and keys.dtype != object:
        return as_keys(keys.reshape(-1))
    if is_nested(keys):
        keys = list(chain.from_iterable(keys))
    return as_keys(keys) if len(keys) else np.zeros(0, np.int64)


def bag_lengths(keys: Any) -> npt.NDArray[np.int64]:
    """Return the number of keys of each bag."""
    if hasattr(keys, "shape") and len(keys.shape) == 2:
        bags, length = keys.shape
        return np.full(bags, length, np.int64)
    if not is_nested(keys):
        raise ValueError(
            "keys of shape (n,) need offsets=, the index of the first key of each bag; or give a "
            "list of bags: [[17, 5], [], [3]]"
        )
    return np.fromiter(map(len, keys), np.int64, len(keys))


def is_nested(keys: Any) -> bool:
    """Return whether this is a list of lists; tuples are keys."""
    return len(keys) > 0 and all(isinstance(one, list | np.ndarray) for one in keys)


def device_of(keys: Any) -> torch.device:
    """Return the device of a tensor, else the CPU."""
    return keys.device if isinstance(keys, torch.Tensor) else torch.device("cpu")
