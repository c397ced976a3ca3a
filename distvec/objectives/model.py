"""A fitted model: parameters with what they mean, to be asked, saved, and exported."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import Handle, SessionBase
from distvec.durability.load import load
from distvec.durability.save import save
from distvec.losses.input_rows import Features, matrix_for
from distvec.losses.loss import (
    MARGINS,
    PREDICTIONS,
    PROBABILITIES,
    Loss,
    Parameter,
    as_arrays,
    as_given,
    check_intercept,
    check_loss,
    predict,
    shape_of,
    warn_renamed,
)
from distvec.losses.rows import Floats, Rows
from optim import Result

_PUBLIC = "distvec.losses"

Weights: TypeAlias = "npt.ArrayLike | Handle | Mapping[str, npt.ArrayLike | Handle]"
"""Parameters as users give them: an array, or a dict of arrays by name."""


def description_of(loss: Loss) -> dict[str, Any]:
    """Its public name and parameters; of one that somebody wrote, the name alone."""
    kind = type(loss)
    if getattr(import_module(_PUBLIC), kind.__name__, None) is not kind:
        return {"own": str(loss)}
    given = {one.name: getattr(loss, one.name) for one in fields(loss) if one.init}  # type: ignore[arg-type]  # losses are dataclasses
    return {"name": kind.__name__, "parameters": {key: _plain(one) for key, one in given.items()}}


def _plain(one: Any) -> Any:
    if isinstance(one, Loss):
        return description_of(one)
    return one.item() if isinstance(one, np.generic) else one


def loss_of(description: Mapping[str, Any], given: Loss | None, path: str) -> Loss:
    """The loss that was described, or the one that is ``given``. ValueError where they differ."""
    if given is None:
        return _loss_of(description, path)
    check_loss(given)
    found = description_of(given)
    if found != description:
        raise ValueError(
            f"loss={given}: {path} contains a model of {_format_description(description)}; pass "
            "that loss, or leave loss= out if it is built in"
        )
    return given


def _loss_of(description: Mapping[str, Any], path: str) -> Loss:
    if "own" in description:
        raise ValueError(
            f"{path} contains a model of {description['own']}, a loss that is not in {_PUBLIC}; "
            f"pass the loss that it was fitted with: Model.load(path, loss=...)"
        )
    kind = getattr(import_module(_PUBLIC), description["name"], None)
    if kind is None:
        raise ValueError(
            f"{path} contains a model of {description['name']}, which this version of distvec does "
            "not have; use the version that wrote it, or a later one"
        )
    parameters = {
        name: _loss_of(one, path) if isinstance(one, Mapping) else one
        for name, one in description["parameters"].items()
    }
    loss: Loss = kind(**parameters)
    return loss


def _format_description(description: Mapping[str, Any]) -> str:
    if "own" in description:
        return str(description["own"])
    given = ", ".join(
        f"{name}={_format_description(one) if isinstance(one, Mapping) else repr(one)}"
        for name, one in description["parameters"].items()
    )
    return f"{description['name']}({given})"


_DOCUMENT = "distvec.model"
"""Where the description is among the texts of a file."""
_FORMAT = 1
_COORDINATES = "coordinates"


class Model:
    """Fitted parameters together with their loss, intercept and features.

    ``objective.fit()`` and ``objective.model(x)`` make one.

    Parameters
    ----------
    x : array or dict of arrays
        The parameters: a row for each feature and, with ``intercept``, one more. NumPy arrays, or
        arrays on the servers.
    loss : Loss
        The loss, bound to its classes, as ``objective.loss`` is.
    intercept : bool, default False
        Whether the last row of ``x`` is an intercept.
    num_features : int, optional
        The number of features of the rows. By default the rows of ``x`` without the intercept.
    coordinates : array of int64, optional
        The features that ``x`` has rows for, ascending. The other weights are 0.
    classes : pair of numbers, optional
        The labels of the negative and the positive class of a loss of two classes. By default 0
        and 1.
    features : str or list of str, default "features"
        The column of features in DataFrames, or columns of numbers.

    Raises
    ------
    ValueError, TypeError
        If ``x`` does not have the shape and dtype that the other arguments imply.

    See Also
    --------
    distvec.spark.Model : The same with methods for DataFrames. It reads the same files.

    Notes
    -----
    Methods for rows in memory need NumPy arrays: use ``model.numpy()`` if the parameters are on
    the servers.

    Examples
    --------
    >>> from distvec.losses import Logistic, Model
    >>> model = Model(np.array([2.0, -1.0, 0.5]), loss=Logistic(), intercept=True)
    >>> model.margins([[1.0, 1.0]]), model.predict([[1.0, 1.0]])
    (array([1.5]), array([1.]))
    >>> model.save("model.safetensors")
    >>> Model.load("model.safetensors").probabilities([[1.0, 1.0]]).round(2)
    array([[0.18, 0.82]])
    """

    result: Result | None = None
    """Of the solver that fitted it, after ``objective.fit()``; it is not saved, nor pickled."""

    def __init__(
        self,
        x: Weights,
        *,
        loss: Loss,
        intercept: bool = False,
        num_features: int | None = None,
        coordinates: npt.ArrayLike | Handle | None = None,
        classes: Sequence[float] | None = None,
        features: str | Sequence[str] = "features",
    ) -> None:
        check_loss(loss)
        check_intercept(loss, intercept)
        self.loss = loss
        self.columns = features if isinstance(features, str) else tuple(features)
        """Of a DataFrame the column of features, or several of numbers."""
        self.has_intercept = bool(intercept)
        if hasattr(x, "keys") and not loss.parameters[0].name:
            raise TypeError(
                f"x is a dict of {sorted(x.keys())}, but a model of {loss} has one array; pass the "
                "loss that they were fitted with: loss=objective.loss"
            )
        self.arrays = tuple(map(_as_array, as_arrays(x, loss.parameters)))
        self.coordinates: Any = None if coordinates is None else _as_array(coordinates)
        """The features that there are rows for; None: all."""
        self.classes = (0.0, 1.0) if classes is None else _two(classes)
        first = loss.parameters[0]
        extra = first.has_intercept(intercept)
        rows = self.arrays[0].shape[0] - extra if self.arrays[0].ndim else -1
        self.num_features = rows if num_features is None else int(num_features)
        """How many features rows have."""
        known = self.coordinates
        self._check(self.num_features if known is None else len(known))
        if isinstance(self.coordinates, np.ndarray):
            _check_coordinates(self.coordinates, self.num_features)

    def _check(self, kept: int) -> None:
        for parameter, array in zip(self.loss.parameters, self.arrays, strict=True):
            wanted = shape_of(parameter, kept, intercept=self.has_intercept)
            if array.shape != wanted or array.shape[0] < self._extra(parameter):
                has = f"{parameter.name} has" if parameter.name else "weights have"
                raise ValueError(
                    f"{has} the shape {array.shape}; a model of {self.loss} over {kept:,} "
                    f"features {'with' if self.has_intercept else 'without'} an intercept has "
                    f"{wanted}; pass intercept=, or call objective.model(x)"
                )
            if array.dtype.kind not in "fiu":
                raise TypeError(f"weights have dtype {array.dtype}; must be real numbers")

    # --- what it is -------------------------------------------------------------------------------

    @property
    def x(self) -> Any:
        """The parameters as the solver had them; see ``coordinates`` and ``has_intercept``."""
        return as_given(self.arrays, self.loss.parameters)

    @property
    def coefficients(self) -> Any:
        """The parameters over all features without the intercept: an array, or a dict of arrays.

        Features that ``compact`` left out have the weight 0. On the servers the array is lazy.
        """
        whole = self.whole()
        cut = [
            array[: whole.num_features] if whole._extra(one) else array
            for one, array in zip(whole.loss.parameters, whole.arrays, strict=True)
        ]
        return as_given(cut, self.loss.parameters)

    @property
    def intercept(self) -> Any:
        """The intercept: a number, or one for each class; 0 without an intercept.

        Reading it from the servers takes one request.
        """
        for one, array in zip(self.loss.parameters, self.arrays, strict=True):
            if one.has_intercept(True):
                if not self.has_intercept:
                    return np.zeros(one.row) if one.row else 0.0
                return _on_client(array[-1:])[0] if one.row else float(array[-1])
        return 0.0

    @property
    def is_local(self) -> bool:
        """Whether all parameters are NumPy arrays."""
        return not any(isinstance(one, Handle) for one in self._all_arrays())

    def whole(self) -> Self:
        """Return the same model over all features.

        Returns
        -------
        Model
            The model itself, unless ``compact`` left features out. Lazy.
        """
        if self.coordinates is None:
            return self
        arrays = [
            _scatter_rows(array, self.coordinates, self.num_features + self._extra(one))
            if one.is_of_features
            else array
            for one, array in zip(self.loss.parameters, self.arrays, strict=True)
        ]
        return self._with(arrays, None)

    def numpy(self) -> Self:
        """Return the same model with NumPy arrays.

        Returns
        -------
        Model
            The model itself if it is local.

        Notes
        -----
        All parameters are copied to this process.
        """
        if self.is_local:
            return self
        coordinates = None if self.coordinates is None else _on_client(self.coordinates)
        return self._with([_on_client(array) for array in self.arrays], coordinates)

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("result", "_broadcast")  # these belong to the driver's session, and to Spark
        return {name: one for name, one in self.__dict__.items() if name not in left_out}

    def __repr__(self) -> str:
        place = "" if self.is_local else " on the servers"
        kept = "" if self.coordinates is None else f" of which it has {len(self.coordinates):,}"
        return (
            f"<{type(self).__name__}{place}: {self.loss}, {self.num_features:,} features{kept}, "
            f"intercept={self.has_intercept}>"
        )

    # --- what it says of rows ---------------------------------------------------------------------

    def margins(self, data: Features) -> Floats:
        """Return the margins ``<x, w> + intercept`` of rows.

        Margins are called ``decision_function`` in scikit-learn. Offsets are not added.

        Parameters
        ----------
        data : array or SciPy sparse matrix, (rows, num_features)
            The rows.

        Returns
        -------
        array of float64, (rows,) or (rows, k)
            A margin, or one for each of ``k`` classes.

        Raises
        ------
        ValueError
            If the rows have another number of features, or some are not finite.
        TypeError
            If the model is on the servers.
        """
        return self._says(MARGINS, data)

    def scores(self, data: Features) -> Floats:
        """Deprecated: use ``margins``."""
        warn_renamed("Model.scores()", "margins()")
        return self.margins(data)

    def probabilities(self, data: Features) -> Floats:
        """Return the probability of each class, as ``predict_proba`` does in scikit-learn.

        Parameters
        ----------
        data : array or SciPy sparse matrix, (rows, num_features)
            The rows.

        Returns
        -------
        array of float64, (rows, k)
            Of two classes, the negative class comes first.

        Raises
        ------
        NotImplementedError
            If the loss has no probabilities. ``Logistic`` and ``Softmax`` have.
        ValueError, TypeError
            As ``margins``.
        """
        return self._says(PROBABILITIES, data)

    def predict(self, data: Features) -> Floats:
        """Return the predicted label of each row.

        Parameters
        ----------
        data : array or SciPy sparse matrix, (rows, num_features)
            The rows.

        Returns
        -------
        array of float64, (rows,)
            One of ``classes``, the number of a class, or a mean.

        Raises
        ------
        NotImplementedError
            If the loss orders rows, or was made by ``block_loss``.
        ValueError, TypeError
            As ``margins``.
        """
        return self._says(PREDICTIONS, data)

    def _says(self, what: str, data: Any) -> Floats:
        if not self.is_local:
            raise TypeError(f"the model is on the servers; call model.numpy().{_CALLED[what]}(...)")
        matrix = matrix_for(data, with_missing=self.loss.takes_missing)
        if matrix.shape[1] != self.num_features:
            raise ValueError(
                f"features have {matrix.shape[1]:,} columns, the model has {self.num_features:,}"
            )
        if self.coordinates is not None:
            matrix = matrix[:, self.coordinates]
        rows = Rows(matrix, np.zeros(matrix.shape[0]))
        found = self.loss.scores(rows, self.arrays, intercept=self.has_intercept)
        return predict(what, self.loss, self.classes, found)

    # --- files ------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, progress: bool = False) -> None:
        """Write parameters and description to a file or a folder.

        Parameters
        ----------
        path : str or path
            As for ``distvec.save``: a file such as ``"model.safetensors"``; a folder, into which
            each server writes its part; or a URL.
        progress : bool, default False
            Whether to show a progress bar.

        Raises
        ------
        ValueError
            If the name ends in ``.npy`` or ``.npz``.

        Notes
        -----
        ``Model.load`` reads it on any machine. A loss of your own is saved by its name. Pass it to
        ``load``.
        """
        if str(path).endswith(".npy"):
            raise ValueError(
                f"save({str(path)!r}): .npy files cannot contain a description; use "
                "model.save('model.safetensors'), or the name of a folder"
            )
        arrays = dict(zip(self._names(self.loss), self.arrays, strict=True))
        if self.coordinates is not None:
            arrays[_COORDINATES] = self.coordinates
        document = {
            "format": _FORMAT,
            "loss": description_of(self.loss),
            "intercept": self.has_intercept,
            "num_features": self.num_features,
            "classes": self.classes,
            "features": self.columns,
        }
        texts = {_DOCUMENT: json.dumps(document)}
        save(path, arrays, metadata=texts, progress=progress)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        session: SessionBase | None = None,
        *,
        loss: Loss | None = None,
        progress: bool = False,
    ) -> Self:
        """Read a model that ``save`` wrote.

        Parameters
        ----------
        path : str or path
            As for ``save``.
        session : Session, optional
            The session whose servers get the arrays. By default they are NumPy arrays.
        loss : Loss, optional
            The loss, if it is your own: the same function.
        progress : bool, default False
            Whether to show a progress bar.

        Returns
        -------
        Model
            With the saved loss, intercept, features and classes.

        Raises
        ------
        ValueError
            If the file contains no model, or a model of another loss than ``loss``.
        OSError, Corrupted, CheckpointIncomplete
            As ``distvec.load``.
        """
        found = load(path, session, progress=progress)
        text = found.metadata.get(_DOCUMENT)
        if text is None:
            raise ValueError(
                f"{path} contains no model, but the arrays {', '.join(found)}; make a model of "
                "one: Model(distvec.load(path)[name], loss=..., intercept=...)"
            )
        document: Mapping[str, Any] = json.loads(text)
        if document["format"] > _FORMAT:
            raise ValueError(
                f"{path} has format {document['format']}, of a newer distvec; update distvec"
            )
        known = loss_of(document["loss"], loss, str(path))
        arrays = [found[name] for name in cls._names(known)]
        return cls(
            as_given(arrays, known.parameters),
            loss=known,
            intercept=document["intercept"],
            num_features=document["num_features"],
            coordinates=found.get(_COORDINATES),
            classes=document["classes"],
            features=document["features"],
        )

    @staticmethod
    def _names(loss: Loss) -> list[str]:
        return [one.name or "x" for one in loss.parameters]

    # --- details ----------------------------------------------------------------------------------

    def _extra(self, parameter: Parameter) -> int:
        return int(parameter.has_intercept(self.has_intercept))

    def _all_arrays(self) -> tuple[Any, ...]:
        return self.arrays if self.coordinates is None else (*self.arrays, self.coordinates)

    def _with(self, arrays: Sequence[Any], coordinates: Any) -> Self:
        made = type(self)(
            as_given(arrays, self.loss.parameters),
            loss=self.loss,
            intercept=self.has_intercept,
            num_features=self.num_features,
            coordinates=coordinates,
            classes=self.classes,
            features=self.columns,
        )
        made.result = self.result
        return made


_CALLED = {MARGINS: "margins", PROBABILITIES: "probabilities", PREDICTIONS: "predict"}


def _two(classes: Sequence[float]) -> tuple[float, float]:
    try:
        negative, positive = map(float, classes)
    except (TypeError, ValueError):
        raise ValueError(
            f"classes={classes!r}; must be two labels, negative and positive; for 0 and 1 leave "
            "classes= out"
        ) from None
    return negative, positive


def _check_coordinates(coordinates: npt.NDArray[Any], features: int) -> None:
    inside = coordinates.size == 0 or (coordinates[0] >= 0 and coordinates[-1] < features)
    if not (inside and (np.diff(coordinates) > 0).all()):
        raise ValueError(
            f"coordinates must be ascending features from 0 to at most {features - 1}, got "
            f"{coordinates}"
        )


def _as_array(given: Any) -> Any:
    return given if isinstance(given, Handle) else np.asarray(given)


def _on_client(array: Any) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = array if isinstance(array, np.ndarray) else array.numpy()
    return found


def _scatter_rows(array: Any, coordinates: Any, length: int) -> Any:
    """``length`` rows: those of ``array`` at ``coordinates``, its last ones at the end, 0 else."""
    home: Any = array.session if isinstance(array, Handle) else np
    whole = home.zeros((length, *array.shape[1:]), array.dtype)
    count = len(coordinates)
    whole[coordinates] = array[:count]
    if count < len(array):
        whole[length - (len(array) - count) :] = array[count:]
    return whole
