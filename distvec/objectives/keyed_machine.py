"""Factorization machines over keys: they learn from streams, and frequent keys have factors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.array.core.handle import SessionBase
from distvec.durability.save import save
from distvec.keyed.array import KeyedArray
from distvec.keyed.row_call import as_keys
from distvec.keyed.space import KeyedSpace, normal
from distvec.losses.factorization import FactorizationMachine
from distvec.losses.field_aware import FieldAwareMachine
from distvec.losses.labels import rule
from distvec.losses.loss import PREDICTIONS, PROBABILITIES, predict
from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Floats, Ints, Rows
from distvec.rows.api import RowFunction, rows
from distvec.rows.optimizers import RowOptimizer

INTERCEPT = -5679041529610252283
"""The key of the intercept, as of a feature that all rows have: that of the text "distvec:
intercept", which it would take a compiler to hash at each import."""


@rows
def read(w: Any, V: Any, used: Any) -> Any:
    """Weights, and factors; 0 for keys without factors."""
    return w, np.where(used[:, None] > 0, V, 0)


def learning(ftrl: RowOptimizer, adagrad: RowOptimizer) -> RowFunction:
    """A step of both, by gradients, for keys that came in ``count`` rows.

    DiFacto's rule: a key gets factors once it was seen often and its weight is not 0.
    """

    @rows
    def learn(
        w: Any, leader: Any, squares: Any, seen: Any, V: Any, sums: Any, used: Any,
        slope: Any, slopes: Any, count: Any, admit: Any, l2: Any, keys: Any,
    ) -> Any:  # fmt: skip
        new = ftrl.update(w, {"leader": leader, "squares": squares}, slope)
        seen = seen + count
        has = used > 0
        stored = has | ((seen > admit) & (new["weights"] != 0) & (keys != INTERCEPT))
        step = adagrad.update(V, {"squares": sums}, slopes + l2 * V)
        V = np.where(has[:, None], step["weights"], V)
        sums = np.where(has[:, None], step["squares"], sums)
        return {
            "w": new["weights"],
            "leader": new["leader"],
            "squares": new["squares"],
            "seen": seen,
            "V": rows.replace(V, where=stored),
            "sums": rows.replace(sums, where=stored),
            "used": rows.replace(np.where(stored, 1, 0).astype("int8"), where=stored),
        }

    return learn


class KeyedMachine:
    """Factorization machine over keys, on servers, that learns by minibatches.

    The margin of a row is the sum of its weights ``x_i w_i`` and of ``x_i x_j <V_i, V_j>`` over its
    pairs of keys. Weights take steps of FTRL, so most of them are exactly 0 with ``l1``. Factors
    ``V`` take steps of AdaGrad. They are stored only for keys that were seen in more than ``admit``
    rows and have a weight other than 0. Other keys have no factors and take no memory for them.

    Parameters
    ----------
    ps : Session
        The session that has the servers.
    factors : int, default 8
        Length of a vector of ``V``.
    fields : int, default 0
        2 or more makes it field-aware: a key has a vector for each field of its partners, and the
        pair has ``<V_i[field of j], V_j[field of i]>``. The field of a key is its place in its row.
    loss : RowLoss, optional
        The loss of margin and label. By default ``Logistic()``.
    intercept : bool, default True
        Whether all rows have one more weight, stored under a key of its own.
    step_size, beta, l1, l2 : float
        Of FTRL, for the weights. Defaults 0.1, 1.0, 0.0 and 0.0.
    factor_step_size : float, default 0.05
        Step size of AdaGrad, for the factors.
    factor_l2 : float, default 0.0
        Penalty ``l2 |V_i|^2 / 2`` of each minibatch, for its keys with factors.
    admit : int, default 10
        A key gets factors when it was seen in more rows.
    spread : float, default 0.01
        Standard deviation of the initial factors. They depend only on ``seed`` and key.
    seed : int, default 0
        Seed of the initial factors.
    most_bytes : int, optional
        Memory limit on all servers together, half for weights and half for factors.
    space : KeyedSpace, optional
        The keyed space for the weights, such as ``ps.keys(admit=3)``. By default a new one.
    saved : mapping of str to KeyedArray, optional
        The ``arrays`` of another machine, to continue with.

    Attributes
    ----------
    weights : KeyedArray
        The weights, a float64 vector.
    seen : KeyedArray
        Numbers of rows with a key, in the space of the weights.
    factors : KeyedArray
        The factors, a float32 table with a space of its own.
    space, factor_space : KeyedSpace
        The keyed spaces of weights and factors.
    loss : FactorizationMachine
        The loss of weights and factors.

    See Also
    --------
    distvec.spark.ml.online_factorization.OnlineFMClassifier : The same for DataFrames.

    Notes
    -----
    A minibatch costs two requests to each server. With ``u`` different keys and rows of ``k``
    factors, tasks receive ``u (8 + 4 k)`` bytes and send keys twice and ``u (12 + 4 k)`` bytes.

    References
    ----------
    M. Li et al., "DiFacto: distributed factorization machines", 2016.

    Examples
    --------
    >>> from distvec.losses import KeyedMachine
    >>> machine = KeyedMachine(ps, factors=2, admit=1)
    >>> clicks = [["user=a", "ad=x"], ["user=b", "ad=x"], ["user=a", "ad=y"]]
    >>> for _ in range(3):
    ...     loss = machine.partial_fit(clicks, [1, 0, 1])
    >>> len(machine.weights), len(machine.factors)
    (5, 4)
    >>> machine.predict(clicks)
    array([1., 0., 1.])
    """

    def __init__(
        self,
        ps: SessionBase,
        *,
        factors: int = 8,
        fields: int = 0,
        loss: RowLoss | None = None,
        intercept: bool = True,
        step_size: float = 0.1,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        factor_step_size: float = 0.05,
        factor_l2: float = 0.0,
        admit: int = 10,
        spread: float = 0.01,
        seed: int = 0,
        most_bytes: int | None = None,
        space: KeyedSpace | None = None,
        saved: Mapping[str, KeyedArray] | None = None,
    ) -> None:
        self.has_intercept, self.factor_l2, self.admit = intercept, factor_l2, admit
        self.most_bytes = most_bytes
        if not (admit >= 0 and factor_l2 >= 0.0):
            raise ValueError(f"admit={admit!r} and factor_l2={factor_l2!r}; must be 0 or more")
        row = {} if loss is None else {"row": loss}
        self.loss: FactorizationMachine = (
            FieldAwareMachine(factors, spread=spread, fields=fields, leading=int(intercept), **row)
            if fields
            else FactorizationMachine(factors, spread=spread, **row)
        )
        if saved is None:
            half = None if most_bytes is None else most_bytes // 2
            space = KeyedSpace(ps, most_bytes=half) if space is None else space
            other = KeyedSpace(ps, most_bytes=half)
            columns, start = self.loss.parameters[1].row[0], normal(scale=spread, seed=seed)
            saved = {"w": space.zeros(), "seen": space.zeros(np.int32)}
            saved |= {"V": other.table(columns, init=start), "used": other.zeros(np.int8)}
        self.weights, self.seen = saved["w"], saved["seen"]
        self.factors, self._used = saved["V"], saved["used"]
        self.space, self.factor_space = (
            cast(KeyedSpace, one.space) for one in (self.weights, self.factors)
        )
        self._ftrl = rows.ftrl(step_size, beta=beta, l1=l1, l2=l2)
        self._adagrad = rows.adagrad(factor_step_size, accumulator=1.0)
        self._states = self.weights.optimizer(self._ftrl)
        self._sums = self.factors.optimizer(self._adagrad)["squares"]

    @property
    def arrays(self) -> dict[str, KeyedArray]:
        """The arrays that it consists of, by name."""
        own = self.weights, self.seen, self.factors, self._used
        return dict(zip(("w", "seen", "V", "used"), own, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a task, which traces the step again."""
        return {name: value for name, value in vars(self).items() if name != "_learn"}

    @cached_property
    def _learn(self) -> RowFunction:
        return learning(self._ftrl, self._adagrad)

    # --- minibatches of rows whose keys are columns -----------------------------------------------

    def pull(self, keys: Ints) -> tuple[Any, Any]:
        """Return weights and factors of keys; factors are 0 for keys without factors.

        Parameters
        ----------
        keys : array of int64
            The keys, ``(n,)``.

        Returns
        -------
        (array of float64, array of float32)
            The weights ``(n,)``, and the factors ``(n, k)``.

        Notes
        -----
        One request to each server that holds some of the keys.
        """
        given = self.weights, self.factors, self._used
        found: tuple[Any, Any] = self.space.apply(read, keys, *given)
        return found

    def step(self, keys: Ints, rows: Rows, gradients: Sequence[Any], to: Any = None) -> None:
        """Take a step of FTRL and AdaGrad, and give factors to keys that are frequent by now.

        Parameters
        ----------
        keys : array of int64
            The keys, one for each column of ``rows``.
        rows : Rows
            The minibatch.
        gradients : sequence of two arrays
            The gradients of weights and factors.
        to : KeyedContributor, optional
            The contributor of a round: the step waits for its end. By default the step is taken
            immediately.

        Notes
        -----
        One request to each server that holds some of the keys.
        """
        matrix: Any = rows.matrix
        counts = np.bincount(matrix.indices, minlength=len(keys)).astype(np.int32)
        (self.space if to is None else to).apply(
            self._learn, keys, self.weights, *self._states.values(), self.seen,
            self.factors, self._sums, self._used, gradients[0],
            np.asarray(gradients[1], np.float32), counts, self.admit, self.factor_l2,
        )  # fmt: skip

    # --- rows as lists of keys, or dicts ----------------------------------------------------------

    def partial_fit(
        self, rows: Iterable[Any], labels: npt.ArrayLike, weights: npt.ArrayLike | None = None
    ) -> float:
        """Learn from a minibatch.

        Parameters
        ----------
        rows : iterable
            For each row a list of keys, or a dict with the number of each key. Keys are integers or
            strings.
        labels : array_like
            The labels, as the loss takes them. Two classes are 0 or -1, and 1.
        weights : array_like, optional
            Row weights, 0 or more.

        Returns
        -------
        float
            The mean loss of the rows before they were learned.

        Raises
        ------
        ValueError
            If a label, a weight or a number is not allowed, or their counts differ.
        OutOfBudget
            If there is no room for new keys; ``evict`` makes some.

        Notes
        -----
        Two requests to each server.
        """
        y = np.asarray(labels, np.float64)
        allowed = rule(self.loss.labels)
        if (bad := allowed.first_bad(y)) is not None or not np.isfinite(y).all():
            raise ValueError(f"row {bad[0]}: {bad[1]}" if bad else "labels must be finite")
        for label in np.unique(y).tolist() if allowed.gathers else ():
            if (reason := allowed.unusable(label, ())) is not None:
                raise ValueError(reason)
        c = None if weights is None else np.asarray(weights, np.float64)
        if c is not None and not (np.isfinite(c) & (c >= 0.0)).all():
            raise ValueError("weights must be finite and 0 or more")
        keys, made = self._rows(rows, allowed.encode(y), c)
        if not len(made):
            return float("nan")
        sums = self.loss.sums(made, self.pull(keys), intercept=False)
        self.step(keys, made, sums.gradients)
        return sums.value / sums.weight if sums.weight else float("nan")

    def margins(self, rows: Iterable[Any]) -> Floats:
        """Return the margins of rows; unknown keys add 0.

        Parameters
        ----------
        rows : iterable
            The rows, as for ``partial_fit``.

        Returns
        -------
        array of float64, (rows,)
            The margins.

        Notes
        -----
        One request to each server. No key is inserted.
        """
        keys, made = self._rows(rows, None, None)
        return self.loss.scores(made, self.pull(keys), intercept=False)

    def probabilities(self, rows: Iterable[Any]) -> Floats:
        """Return the probabilities of the negative and of the positive class.

        Parameters
        ----------
        rows : iterable
            The rows, as for ``partial_fit``.

        Returns
        -------
        array of float64, (rows, 2)
            The probabilities.
        """
        return predict(PROBABILITIES, self.loss, (0.0, 1.0), self.margins(rows))

    def predict(self, rows: Iterable[Any]) -> Floats:
        """Return the predicted labels: a class, or a mean.

        Parameters
        ----------
        rows : iterable
            The rows, as for ``partial_fit``.

        Returns
        -------
        array of float64, (rows,)
            The labels.
        """
        return predict(PREDICTIONS, self.loss, (0.0, 1.0), self.margins(rows))

    def _rows(
        self, given: Iterable[Any], labels: Floats | None, weights: Floats | None
    ) -> tuple[Ints, Rows]:
        """The different keys, ascending, and the rows, with a column for each of them."""
        listed = list(given)
        lengths = np.array([len(row) for row in listed], np.int64)
        flat = as_keys(list(chain.from_iterable(listed)))
        x = [row.values() if isinstance(row, Mapping) else [1.0] * len(row) for row in listed]
        values = np.array(list(chain.from_iterable(x)), np.float64)
        if not np.isfinite(values).all():
            raise ValueError("the numbers of keys must be finite")
        if labels is None:
            labels = np.zeros(lengths.size)
        if not lengths.size == labels.size == (labels if weights is None else weights).size:
            raise ValueError(f"{lengths.size} rows, and {labels.size} labels")
        if self.has_intercept:
            starts = np.cumsum(lengths) - lengths
            flat, values = np.insert(flat, starts, INTERCEPT), np.insert(values, starts, 1.0)
            lengths = lengths + 1
        keys, columns = np.unique(flat, return_inverse=True)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        matrix = sp.csr_array((values, columns, ends), shape=(lengths.size, keys.size))
        return keys, Rows(matrix, labels, weights)

    # --- memory and files -------------------------------------------------------------------------

    @property
    def intercept(self) -> float:
        """The weight that all rows share. Reading it takes one request."""
        return float(self.weights.pull([INTERCEPT])[0]) if self.has_intercept else 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of keys, weights and factors on all servers. One request to each."""
        return int(self.space.state().bytes + self.factor_space.state().bytes)

    def evict(self, count: int) -> int:
        """Keep the keys that were seen most often, and remove all others.

        Parameters
        ----------
        count : int
            Number of keys to keep.

        Returns
        -------
        int
            Number of removed keys.

        Notes
        -----
        The keys with factors are read, to remove those that are gone.
        """
        removed = self.space.keep(count, by=self.seen)
        keys = self.factor_space.keys()
        if removed and len(keys):
            self.factor_space.remove(keys[~self.space.contains(keys)])
        return removed

    def save(self, path: str | os.PathLike[str]) -> None:
        """Let the servers write keys, weights, factors, and the states of both optimizers.

        Parameters
        ----------
        path : str or path
            The new directory.
        """
        save(os.path.join(path, "weights"), {"w": self.weights, "seen": self.seen})
        save(os.path.join(path, "factors"), {"V": self.factors, "used": self._used})

    @classmethod
    def load(cls, ps: Any, path: str | os.PathLike[str], **options: Any) -> Self:
        """Load the files of ``save``, on any number of servers.

        Parameters
        ----------
        ps : Session
            The session.
        path : str or path
            The directory.
        **options
            As for the constructor; pass those that the saved one had.

        Returns
        -------
        KeyedMachine
            The machine, which predicts, and continues to learn.
        """
        parts = [ps.load(os.path.join(path, part)) for part in ("weights", "factors")]
        return cls(ps, saved={**parts[0], **parts[1]}, **options)
