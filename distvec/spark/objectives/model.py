"""Fitted models that say something of DataFrames' rows, and the same models in MLlib's classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast, SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.utils import is_remote

from distvec.array.core.handle import Handle
from distvec.losses import FactorizationMachine, RowLoss, Softmax, Squared, Weibull
from distvec.losses.classification import Logistic
from distvec.losses.clustering import Quantization
from distvec.losses.input_rows import Features
from distvec.losses.loss import MARGINS, PREDICTIONS, PROBABILITIES, Loss, warn_renamed
from distvec.objectives import model as models
from distvec.spark.context import STOPPED, PSContext
from distvec.spark.data.columns import Columns, feature_column, feature_names
from distvec.spark.jobs.application import is_connect
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.objectives.scores import Arrays, Request, empty_answers, score_batches
from ps_backend.client import StoredArray
from ps_backend.program.types import FLOATS

if TYPE_CHECKING:
    from pyspark.ml.classification import LogisticRegressionModel
    from pyspark.ml.clustering import KMeansModel
    from pyspark.ml.util import JavaMLWritable

_CLASSIFICATION = "org.apache.spark.ml.classification"


def model_in_mllib(model: models.Model) -> JavaMLWritable:
    """The model of MLlib that says what ``model`` says, its parameters on the driver.

    ``NotImplementedError`` as ``check_loss``; ``RuntimeError`` without a SparkSession.
    """
    from pyspark.ml.classification import (
        FMClassificationModel,
        LinearSVCModel,
        LogisticRegressionModel,
    )
    from pyspark.ml.linalg import DenseMatrix
    from pyspark.ml.regression import (
        AFTSurvivalRegressionModel,
        FMRegressionModel,
        LinearRegressionModel,
    )

    loss = model.loss
    check_loss(loss)
    local = model.whole().numpy()
    if isinstance(loss, Quantization):
        return _clusters(np.asarray(local.coefficients, np.float64).T, loss.measure)
    if isinstance(loss, FactorizationMachine):
        kind = FMClassificationModel if isinstance(loss.row, Logistic) else FMRegressionModel
        table = local.coefficients["V"]
        rows, columns = table.shape
        factors = DenseMatrix(rows, columns, table.ravel(), isTransposed=True)
        return in_mllib(kind, local.intercept, local.coefficients["w"], factors)
    if isinstance(loss, Weibull):
        x, scale = local.coefficients, math.exp(float(local.x["log_scale"][0]))
        return in_mllib(AFTSurvivalRegressionModel, x["w"], local.intercept, scale)
    coefficients = np.asarray(local.coefficients, np.float64)
    rest = np.asarray(local.intercept, np.float64)
    if isinstance(loss, Softmax):
        return _softmax(coefficients, rest)
    if isinstance(loss, Logistic):
        return in_mllib(LogisticRegressionModel, coefficients, rest)
    if loss.labels == "signs":
        return in_mllib(LinearSVCModel, coefficients, rest)
    return in_mllib(LinearRegressionModel, coefficients, rest)


def in_mllib(kind: Any, *attributes: Any) -> JavaMLWritable:
    """A model of the class ``kind`` of ``pyspark.ml``, of arrays, matrices and numbers."""
    from pyspark.ml.common import _py2java
    from pyspark.ml.linalg import DenseVector, Matrix

    arguments = [
        _py2java(_context(), one if isinstance(one, Matrix) else DenseVector(one))
        if isinstance(one, Matrix) or np.ndim(one)
        else float(one)
        for one in attributes
    ]
    name = f"{kind.__module__}.{kind.__name__}".replace("pyspark", "org.apache.spark", 1)
    made: JavaMLWritable = kind._from_java(_class(name)(_uid(kind.__name__), *arguments))
    return made


def mixture_in_mllib(weights: Sequence[float], gaussians: Sequence[Any]) -> JavaMLWritable:
    """A ``GaussianMixtureModel`` of these shares and distributions."""
    from pyspark.ml.clustering import GaussianMixtureModel
    from pyspark.ml.common import _py2java

    context = _context()
    gateway: Any = context._gateway
    shares = gateway.new_array(context._jvm.double, len(weights))  # type: ignore[union-attr]
    name = "org.apache.spark.ml.stat.distribution.MultivariateGaussian"
    made = gateway.new_array(_class(name), len(weights))
    for j, (share, one) in enumerate(zip(weights, gaussians, strict=True)):
        shares[j] = share
        made[j] = _class(name)(_py2java(context, one.mean), _py2java(context, one.cov))
    found: JavaMLWritable = GaussianMixtureModel._from_java(
        _class("org.apache.spark.ml.clustering.GaussianMixtureModel")(_uid("gmm"), shares, made)
    )
    return found


def topics_in_mllib(topics: Any, prior: Any, concentration: float) -> JavaMLWritable:
    """A ``LocalLDAModel`` of these parameters of topics, and concentrations."""
    from pyspark.ml.clustering import LocalLDAModel
    from pyspark.mllib.common import _py2java
    from pyspark.mllib.linalg import Matrices, Vectors

    context, uid = _context(), _uid("lda")
    parts = _py2java(context, Matrices.fromML(topics)), _py2java(context, Vectors.dense(prior))
    old = _class("org.apache.spark.mllib.clustering.LocalLDAModel")(*parts, concentration, 100.0)
    session = _class("org.apache.spark.sql.classic.SparkSession").builder().getOrCreate()
    made = _class("org.apache.spark.ml.clustering.LocalLDAModel")(uid, topics.numRows, old, session)
    found: JavaMLWritable = LocalLDAModel._from_java(made)
    return found


def check_loss(loss: Loss) -> None:
    """``NotImplementedError`` for losses of which MLlib has no model."""
    known = isinstance(loss, RowLoss) and loss.labels in ("signs", "real")
    if isinstance(loss, FactorizationMachine):
        known = isinstance(loss.row, Logistic | Squared)
    if not known and not isinstance(loss, Softmax | Weibull | Quantization):
        raise NotImplementedError(
            f"MLlib has no model for {loss}; Logistic, Softmax, hinges, losses of real labels, "
            "Weibull, and FactorizationMachine of Logistic or Squared can be exported; save any "
            "other with model.save(path)"
        )


def _softmax(table: np.ndarray, intercepts: np.ndarray) -> LogisticRegressionModel:
    from pyspark.ml.classification import LogisticRegressionModel
    from pyspark.ml.common import _py2java
    from pyspark.ml.linalg import DenseMatrix, DenseVector

    classes = table.shape[1]
    matrix = DenseMatrix(classes, len(table), np.ascontiguousarray(table).ravel())
    context = _context()
    args = (_py2java(context, matrix), _py2java(context, DenseVector(intercepts)), classes, True)
    made = _class(f"{_CLASSIFICATION}.LogisticRegressionModel")(_uid("logreg"), *args)
    return LogisticRegressionModel._from_java(made)


def _clusters(centers: np.ndarray, measure: str) -> KMeansModel:
    from pyspark.ml.clustering import KMeansModel
    from pyspark.mllib.common import _py2java
    from pyspark.mllib.linalg import DenseVector

    context = _context()
    gateway: Any = context._gateway
    vectors = gateway.new_array(_class("org.apache.spark.mllib.linalg.Vector"), len(centers))
    for k, center in enumerate(centers):
        vectors[k] = _py2java(context, DenseVector(center))
    old = _class("org.apache.spark.mllib.clustering.KMeansModel")(vectors, measure, 0.0, -1)
    made = _class("org.apache.spark.ml.clustering.KMeansModel")(_uid("kmeans"), old)
    return KMeansModel._from_java(made)


def _class(name: str) -> Any:
    found = _context()._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _uid(prefix: str) -> str:
    return str(_class("org.apache.spark.ml.util.Identifiable").randomUID(prefix))


def _context() -> SparkContext:
    # A thread of its own, as those of CrossValidator, has no active session.
    context = SparkContext._active_spark_context
    if is_remote():
        raise NotImplementedError(
            "models of MLlib cannot be made through Spark Connect; an estimator's model can be "
            'saved by model.write().format("mllib").save(path), and loaded as MLlib\'s'
        )
    if context is None:
        raise RuntimeError("models of MLlib need Spark; start a SparkSession first")
    return context


class Model(models.Model):
    """A fitted model for DataFrames and for arrays.

    ``objective.fit()`` and ``objective.model(x)`` make one. It is a ``distvec.losses.Model``,
    takes the same arguments and reads the same files. ``margins``, ``probabilities`` and
    ``predict`` also take a DataFrame.

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

    Notes
    -----
    Frames are lazy. Tasks pull the coordinates of their rows from the servers, with one request
    for each batch of rows and array. The servers keep these arrays until Spark has dropped the
    last frame made of them, or until ``ps.stop()``. Spark broadcasts a model with NumPy arrays,
    such as ``model.numpy()``, to the executors. Its frames need no servers.

    Examples
    --------
    >>> from distvec.losses import Logistic
    >>> from distvec.spark import Model
    >>> model = Model(np.array([2.0, -2.0, 0.0, 1.0]), loss=Logistic())
    >>> model.margins(train).select("label", "margin").show(2)
    +-----+------+
    |label|margin|
    +-----+------+
    |  1.0|   2.0|
    |  0.0|  -2.0|
    +-----+------+
    only showing top 2 rows
    """

    def margins(
        self,
        data: DataFrame | Features,
        *,
        output: str = "margin",
        features: str | Sequence[str] | None = None,
    ) -> Any:
        """Add a column with the margins of rows, or return those of rows in memory.

        Margins are linear predictors, the ``rawPrediction`` of MLlib and the ``decision_function``
        of scikit-learn. Offsets are not added.

        Parameters
        ----------
        data : DataFrame, array or SciPy sparse matrix
            The rows.
        output : str, default "margin"
            For a DataFrame: the name of the new column.
        features : str or list of str, optional
            For a DataFrame: the column of features, or several columns of numbers. By default the
            columns that the model was fitted to.

        Returns
        -------
        DataFrame or array
            ``data`` with the column ``output``, lazy; for rows in memory an array. A model of
            ``k`` classes has ``k`` margins for each row, an array column.

        Raises
        ------
        ValueError
            If there is a column ``output``, or no column of the name that ``features`` gives.
        TypeError
            If ``features`` names columns of other types; if rows in memory are given to a model on
            the servers.
        """
        return self._of(MARGINS, data, output, features)

    def scores(
        self,
        data: DataFrame | Features,
        *,
        output: str = "score",
        features: str | Sequence[str] | None = None,
    ) -> Any:
        """Deprecated: use ``margins``, whose column is ``margin`` by default."""
        warn_renamed("Model.scores()", "margins()")
        return self.margins(data, output=output, features=features)

    def probabilities(
        self,
        data: DataFrame | Features,
        *,
        output: str = "probability",
        features: str | Sequence[str] | None = None,
    ) -> Any:
        """Add an array column with the probability of each class.

        For rows in memory it returns an array, as ``predict_proba`` of scikit-learn does.

        Parameters
        ----------
        data : DataFrame, array or SciPy sparse matrix
            The rows.
        output : str, default "probability"
            For a DataFrame: the name of the new column.
        features : str or list of str, optional
            For a DataFrame: the column of features, or several columns of numbers. By default the
            columns that the model was fitted to.

        Returns
        -------
        DataFrame or array
            ``data`` with the column, lazy; for rows in memory an array, ``(rows, k)``. Of two
            classes, the negative class comes first.

        Raises
        ------
        NotImplementedError
            If the loss has no probabilities.
        ValueError, TypeError
            As ``margins``.
        """
        return self._of(PROBABILITIES, data, output, features)

    def predict(
        self,
        data: DataFrame | Features,
        *,
        output: str = "prediction",
        features: str | Sequence[str] | None = None,
    ) -> Any:
        """Add a column with the predicted labels: a class, or a mean.

        Parameters
        ----------
        data : DataFrame, array or SciPy sparse matrix
            The rows.
        output : str, default "prediction"
            For a DataFrame: the name of the new column.
        features : str or list of str, optional
            For a DataFrame: the column of features, or several columns of numbers. By default the
            columns that the model was fitted to.

        Returns
        -------
        DataFrame or array
            ``data`` with the column, lazy; for rows in memory an array.

        Raises
        ------
        NotImplementedError
            If the loss does not predict labels.
        ValueError, TypeError
            As ``margins``.
        """
        return self._of(PREDICTIONS, data, output, features)

    def to_mllib(self) -> Any:
        """Return the same model as a model of MLlib; see ``distvec.spark.mllib_model``.

        Returns
        -------
        JavaMLWritable
            A model of ``pyspark.ml``. Its classes are 0 and 1.
        """
        return model_in_mllib(self)

    def _of(self, what: str, data: Any, output: str, features: str | Sequence[str] | None) -> Any:
        if not isinstance(data, DataFrame):
            return self._says(what, data)
        return _add_scores(self, {output: what}, data, features)

    def add_columns(
        self, data: DataFrame, wanted: Mapping[str, str], features: str | Sequence[str] | None
    ) -> DataFrame:
        """Add several columns, each with margins, probabilities or predictions.

        Parameters
        ----------
        data : DataFrame
            The rows.
        wanted : dict of str to str
            By the name of a new column "margins", "probabilities" or "predictions".
        features : str or list of str, optional
            As of ``margins``.

        Returns
        -------
        DataFrame
            ``data`` with the columns, lazy. The margins of a row are computed once.
        """
        return _add_scores(self, wanted, data, features)


def scores(
    df: DataFrame,
    weights: models.Model | models.Weights,
    *,
    loss: Loss | None = None,
    features: str | Sequence[str] | None = None,
    output: str = "score",
    intercept: bool | None = None,
) -> DataFrame:
    """Deprecated: use ``margins``, whose column is ``margin`` by default."""
    warn_renamed("distvec.spark.scores()", "margins()")
    return margins(df, weights, loss=loss, features=features, output=output, intercept=intercept)


def margins(
    df: DataFrame,
    weights: models.Model | models.Weights,
    *,
    loss: Loss | None = None,
    features: str | Sequence[str] | None = None,
    output: str = "margin",
    intercept: bool | None = None,
) -> DataFrame:
    """Add a column with the margins that some weights give.

    Margins are linear predictors. ``Model.probabilities`` adds probabilities.

    Parameters
    ----------
    df : DataFrame
        The rows.
    weights : Model or array or dict of arrays
        A model, or parameters on the servers. If a solver found them, or if an objective was
        evaluated at them, loss, intercept and compaction are known.
    loss : Loss, optional
        The loss that the weights belong to, if it is unknown. By default the margin is ``<x, w>``.
    features : str or list of str, optional
        The column of features, or several columns of numbers. By default the columns that the
        model was fitted to.
    output : str, default "margin"
        The name of the new column.
    intercept : bool, optional
        Whether the last row of ``weights`` is an intercept, if that is unknown.

    Returns
    -------
    DataFrame
        ``df`` with the column. Lazy, as ``Model.margins``.

    Raises
    ------
    ValueError
        If ``loss`` or ``intercept`` differs from the known one; if there is a column ``output``.
    TypeError
        If ``weights`` are not on the servers of a ``PSContext``.

    Examples
    --------
    >>> from distvec.spark import margins
    >>> margins(train, ps.array([2.0, -2.0, 0.0, 1.0])).select("margin").first().margin
    2.0
    """
    model = model_of(weights, loss, intercept)
    if not isinstance(weights, models.Model) and model.is_local:
        raise TypeError("weights must be a DistArray of a PSContext; create one: ps.array(weights)")
    return _add_scores(model, {output: MARGINS}, df, features)


def mllib_model(
    weights: models.Model | models.Weights,
    *,
    loss: Loss | None = None,
    intercept: bool | None = None,
) -> JavaMLWritable:
    """Convert weights to a model of MLlib, which its ``save`` writes in MLlib's layout.

    Parameters
    ----------
    weights : Model or array or dict of arrays
        A model, or parameters over all features: on the servers, or NumPy arrays. If a solver
        found them for an objective, loss, intercept and compaction are known.
    loss : Loss, optional
        The loss that the weights belong to, if it is unknown. By default ``Logistic()``.
    intercept : bool, optional
        Whether the last row of ``weights`` is an intercept, if that is unknown.

    Returns
    -------
    JavaMLWritable
        A ``LogisticRegressionModel`` for ``Logistic`` and ``Softmax``. A ``LinearSVCModel`` for
        hinges and other losses of two classes. A ``LinearRegressionModel`` for losses of real
        labels. An ``AFTSurvivalRegressionModel`` for ``Weibull``. An ``FMClassificationModel`` or
        ``FMRegressionModel`` for ``FactorizationMachine`` of ``Logistic`` or ``Squared``.

    Raises
    ------
    ValueError
        If ``loss`` or ``intercept`` differs from the known one.
    NotImplementedError
        If MLlib has no model for the loss.
    RuntimeError
        Without a SparkSession.

    Notes
    -----
    MLlib keeps the weights on the driver.

    Examples
    --------
    >>> from distvec.spark import mllib_model
    >>> made = mllib_model(np.array([2.0, -2.0, 0.0, 1.0]))  # needs the running spark
    >>> type(made).__name__, made.numFeatures
    ('LogisticRegressionModel', 4)
    """
    if loss is not None:
        check_loss(loss)
    return model_in_mllib(model_of(weights, loss, intercept))


def model_of(weights: Any, loss: Loss | None, intercept: bool | None) -> Model:
    """``weights`` as a model; ValueError where it is known to be another than is said."""
    if isinstance(weights, models.Model):
        known = weights
    else:
        bare = Logistic() if loss is None else loss
        known = _model_of(weights) or Model(weights, loss=bare, intercept=bool(intercept))
    if loss is not None and type(loss) is not type(known.loss):
        raise ValueError(f"loss={loss}: the weights belong to {known.loss}; leave loss= out")
    if intercept is not None and bool(intercept) != known.has_intercept:
        raise ValueError(
            f"intercept={intercept}: the weights belong to a model "
            f"{'with' if known.has_intercept else 'without'} one; leave intercept= out"
        )
    return known if isinstance(known, Model) else as_spark(known)


def as_spark(model: models.Model) -> Model:
    """A model with methods for DataFrames."""
    made = object.__new__(Model)
    made.__dict__.update(model.__dict__)
    return made


def _model_of(weights: Any) -> Model | None:
    """What is known of parameters that an objective has seen."""
    some = weights
    if hasattr(weights, "values") and hasattr(weights, "keys"):
        some = next(iter(weights.values()), None)
    session = some.session if isinstance(some, Handle) else None
    if not isinstance(session, PSContext):
        return None
    make = session.fitted.get(some)
    return None if make is None else make(weights)


def _add_scores(
    model: models.Model,
    wanted: Mapping[str, str],
    df: DataFrame,
    names: str | Sequence[str] | None,
) -> DataFrame:
    names = model.columns if names is None else names
    for output in wanted:
        if output.lower() in map(str.lower, df.columns):
            raise ValueError(
                f"output={output!r} is a column of the data; pass another output=..., or drop it: "
                f"data.drop({output!r})"
            )
    features = feature_column(df, names)
    request, session = _request(model, tuple(dict.fromkeys(wanted.values())), df)
    request = replace(request, names=Columns(feature_names(names)).feature_names)
    use_driver_python(df)

    # arrow_udf reads the kind of function from these hints, which a functools.partial cannot have.
    def score(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return score_batches(request, batches)

    kinds = ["array<double>" if one.ndim == 2 else "double" for one in empty_answers(request)]
    is_single = len(kinds) == 1
    fields = ", ".join(f"{what}: {kind}" for what, kind in zip(request.wanted, kinds, strict=True))
    kind = kinds[0] if is_single else f"struct<{fields}>"
    udf = arrow_udf(score, kind)  # type: ignore[call-overload]  # the stubs want the kind
    answer = udf(features)
    columns = {name: answer if is_single else answer[what] for name, what in wanted.items()}
    scored = df.withColumns(columns)
    if session is not None:
        held = [array.copy() for array in model._all_arrays()]
        session.scored.hold(session.spark_context, udf._unwrapped._judf.func(), held)
    return scored


def _request(
    model: models.Model, wanted: tuple[str, ...], df: DataFrame
) -> tuple[Request, PSContext | None]:
    """With the session of the arrays, where they are such as tasks of ``df`` can pull."""
    about = (wanted, model.loss, model.classes, model.has_intercept, model.num_features)
    if is_connect(df.sparkSession):
        return Request(*about, _for_closure(model)), None
    context = df.sparkSession.sparkContext
    if model.is_local:
        return Request(*about, _broadcast(model, context)), None
    arrays = model._all_arrays()
    session = _session_of(context, arrays, len(model.arrays))
    session.evaluate(*arrays)
    stored = [StoredArray(array.buffer_id, array.type) for array in arrays]
    count = len(model.arrays)
    kept_ones = None if model.coordinates is None else stored[-1]
    return Request(*about, Arrays(tuple(stored[:count]), kept_ones), session.access), session


_CLOSURE_BYTES = 1 << 26
"""A message to a Spark Connect server is limited to 128 MiB, and goes with each action."""


def _for_closure(model: models.Model) -> Arrays:
    """The arrays of a model in memory, for Spark Connect, which has no broadcasts."""
    if not model.is_local:
        raise NotImplementedError(
            "Spark Connect has no access to arrays on the servers; copy the model: model.numpy()"
        )
    size = sum(array.nbytes for array in model._all_arrays())
    if size > _CLOSURE_BYTES:
        raise NotImplementedError(
            f"with Spark Connect a model has at most {_CLOSURE_BYTES:,} bytes, this one "
            f"{size:,}; save it, and load it with a classic SparkSession"
        )
    return Arrays(model.arrays, model.coordinates)


def _broadcast(model: models.Model, context: SparkContext) -> Broadcast[Arrays]:
    """Of its arrays: made once, and removed by Spark with the last plan that has it."""
    known = model.__dict__.get("_broadcast")
    if known is None or known[0] is not context:
        sent = context.broadcast(Arrays(model.arrays, model.coordinates))
        known = model.__dict__["_broadcast"] = context, sent
    broadcast: Broadcast[Arrays] = known[1]
    return broadcast


def _session_of(context: SparkContext, arrays: Sequence[Any], parameters: int) -> PSContext:
    session = arrays[0].session if isinstance(arrays[0], Handle) else None
    if not isinstance(session, PSContext):
        raise TypeError("weights must be a DistArray of a PSContext; create one: ps.array(weights)")
    if session.is_stopped:
        raise RuntimeError(STOPPED)
    if context is not session.spark_context:
        raise ValueError("the data belongs to another SparkContext than the weights")
    for array in arrays:
        if not isinstance(array, Handle) or array.session is not session:
            raise ValueError(
                "the weights belong to several sessions; create all with one PSContext"
            )
    for array in arrays[:parameters]:
        if array.dtype.name not in FLOATS:
            raise TypeError(f"weights have dtype {array.dtype}; allowed are float64 and float32")
    return session
