"""Regressions of pyspark.ml by another import: Params, optima, predictions, metrics, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyspark
import pytest
from pyspark.ml import regression as mllib
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F

from distvec.spark.ml import least_squares
from distvec.spark.ml.regression import (
    GeneralizedLinearRegression,
    LinearRegression,
    LinearRegressionModel,
)
from distvec.spark.objectives.objective import Objective
from tests.samples import marked

DATA = Path(pyspark.__file__).parent / "data" / "mllib"
TIGHT = {"tol": 1e-12, "maxIter": 1000, "regParam": 0.3}

# Optima that MLlib 4.3 found at the same tolerance: arguments, coefficients, intercept.
NET = {"elasticNetParam": 0.8}
OPTIMA = [
    (
        NET,
        (
            "0 .3229239183 -.3438556252 1.9156004060 .0528841595 .7659655069 0 -.1510547860 "
            "-.2158790203 .2202541120"
        ),
        0.1598939729,
    ),
    (
        NET | {"solver": "l-bfgs"},
        (
            "0 .3224255564 -.3434040786 1.9150714151 .0524355163 .7655849014 0 -.1506642206 "
            "-.2154382928 .2197802243"
        ),
        0.1599154832,
    ),
    (
        {"standardization": False},
        (
            ".0160307669 .7425527225 -.7373783342 2.213738559 .4680447871 1.059147549 -.2819885614 "
            "-.4706190957 -.569940068 .6323128697"
        ),
        0.1535894091,
    ),
]


@pytest.fixture(scope="module")
def rows(spark):
    """501 rows of ten features."""
    frame = spark.read.format("libsvm").load(str(DATA / "sample_linear_regression_data.txt"))
    return frame.coalesce(1).cache()


@pytest.fixture(scope="module")
def few(spark):
    """The rows of pyspark's own test, with weights."""
    values = [(1.0, 1.0, [0.0, 5.0]), (0.0, 2.0, [1.0, 2.0])]
    values += [(1.5, 3.0, [2.0, 1.0]), (0.7, 4.0, [1.5, 3.0])]
    made = [(label, weight, Vectors.dense(x)) for label, weight, x in values]
    return spark.createDataFrame(made, ["label", "weight", "features"]).coalesce(1).cache()


def metrics_agree(found, expected, names):
    for name in names:
        ours, his = getattr(found, name), getattr(expected, name)
        if hasattr(his, "columns"):
            assert ours.columns == his.columns
            ours, his = np.array(ours.collect()), np.array(his.collect())
        assert ours == his if isinstance(his, str) else np.allclose(ours, his, atol=1e-9), name


@pytest.mark.parametrize(("params", "coefficients", "intercept"), OPTIMA)
def test_optima_of_linear_regression_are_those_of_mllib(ps, rows, params, coefficients, intercept):
    model = LinearRegression(**TIGHT, **params).fit(rows)
    tolerance = 1e-6 if "elasticNetParam" in params else 1e-9
    assert np.allclose(model.coefficients, np.array(coefficients.split(), float), atol=tolerance)
    assert model.intercept == pytest.approx(intercept, abs=tolerance) and model.scale == 1.0
    summary = model.summary
    assert summary.totalIterations == len(summary.objectiveHistory) - 1
    if "standardization" in params:
        assert summary.objectiveHistory == [0.0]
        return
    with pytest.raises(RuntimeError, match=r"No Std\. Error of coefficients available"):
        _ = summary.tValues
    if "solver" not in params:
        assert summary.rootMeanSquaredError == pytest.approx(10.1890770909, abs=1e-7)
        assert summary.r2 == pytest.approx(0.0228614816, abs=1e-7)


def test_huber_estimates_a_scale_as_mllib_does(ps, rows):
    """The values of pyspark's own test; and with penalties, beside MLlib."""
    tight = {"loss": "huber", "tol": 1e-12, "maxIter": 1000, "weightCol": "w"}
    frame = rows.withColumn("w", F.lit(1.0))
    model = LinearRegression(epsilon=2.0, **tight).fit(frame)
    expected = ".136 .7648 -.7761 2.4236 .537 1.2612 -.333 -.5694 -.6311 .6053".split()
    assert np.allclose(model.coefficients, np.array(expected, float), atol=5e-4)
    assert model.intercept == pytest.approx(0.1607, abs=1e-4)
    assert model.scale == pytest.approx(9.758, abs=1e-3)
    frame = rows.withColumn("w", 1.0 + F.abs("label") % 2)
    for standardization in (True, False):
        given = tight | {"regParam": 0.3, "standardization": standardization}
        model = LinearRegression(**given).fit(frame)
        theirs = mllib.LinearRegression(**given).fit(frame)
        assert np.allclose(model.coefficients, theirs.coefficients, atol=2e-5)
        assert model.intercept == pytest.approx(theirs.intercept, abs=2e-5)
        assert model.to_mllib().scale == pytest.approx(theirs.scale, abs=2e-5)
        value = model.summary.objectiveHistory[-1]  # MLlib stops at a higher one
        assert value <= theirs.summary.objectiveHistory[-1]
    again = LinearRegression(**given, initialModel=model).fit(frame)
    assert again.summary.totalIterations < model.summary.totalIterations
    assert again.scale == pytest.approx(model.scale, abs=1e-6)
    for wrong in ({"solver": "normal"}, {"elasticNetParam": 0.5}):
        with pytest.raises(ValueError, match="LinearRegression with huber loss"):
            LinearRegression(loss="huber", **wrong).fit(rows)


def test_statistics_of_linear_regression_are_those_of_mllib(ps, few, tmp_path):
    params = {"regParam": 0.0, "solver": "normal", "weightCol": "weight"}
    model = LinearRegression(**params).fit(few)
    theirs = mllib.LinearRegression(**params).fit(few)
    assert np.allclose(model.coefficients, [0.65, 0.1125]) and model.intercept == pytest.approx(
        -0.35
    )
    assert np.allclose(model.summary.coefficientStandardErrors, [1.28598, 0.624875, 3.16455])
    names = [
        name
        for name in dir(mllib.LinearRegressionTrainingSummary)
        if name[0] != "_" and name != "predictions"
    ]
    metrics_agree(model.summary, theirs.summary, names)
    assert model.summary.numInstances == 4 and model.summary.degreesOfFreedom == 1
    names = [name for name in names if name[-6:] not in ("Errors", "Values", "istory", "ations")]
    model = LinearRegression(weightCol="weight", fitIntercept=False).fit(few)
    theirs = model.to_mllib()
    metrics_agree(model.evaluate(few), theirs.evaluate(few), names)
    arrays = few.withColumn("x", vector_to_array("features"))
    found = model.copy().setFeaturesCol("x").transform(arrays).collect()
    for ours, his in zip(found, theirs.transform(few).collect(), strict=True):
        assert ours.prediction == pytest.approx(his.prediction, abs=1e-12)
        assert model.predict(ours.features) == pytest.approx(his.prediction, abs=1e-12)
    check_files(model, mllib.LinearRegressionModel, tmp_path)
    model.write().format("pmml").save(str(tmp_path / "pmml"))
    (part,) = (tmp_path / "pmml").glob("part-*")
    assert "<RegressionModel" in part.read_text()


def check_files(model, kind, folder):
    """Files go both ways."""
    ours, his = str(folder / "ours"), str(folder / "his")
    model.save(ours)
    model.write().format("mllib").save(his)
    theirs = kind.load(his)
    theirs.write().overwrite().save(his)
    for path in (ours, his):
        again = type(model).load(path)
        assert str(again) == str(model) == str(theirs) and not again.hasSummary
        assert again.coefficients == model.coefficients == theirs.coefficients
        assert again.intercept == model.intercept and again.extractParamMap().keys()
        for param, value in model.extractParamMap().items():
            assert again.getOrDefault(param.name) == value
    assert type(model).from_mllib(theirs).coefficients == model.coefficients


def test_rows_of_a_regression_are_read_once_for_all_param_maps(ps, rows, monkeypatch):
    made = []
    init, products_of = Objective.__init__, least_squares.products_of
    monkeypatch.setattr(Objective, "__init__", lambda *a, **k: (made.append(1), init(*a, **k))[1])
    monkeypatch.setattr(
        least_squares, "products_of", lambda *a: (made.append(2), products_of(*a))[1]
    )
    estimator = LinearRegression(solver="normal")
    maps = [
        {estimator.regParam: r, estimator.standardization: s} for r, s in [(0, True), (1, False)]
    ]
    models = dict(estimator.fitMultiple(rows, maps))
    assert made == [1, 2] and models[1].getRegParam() == 1.0
    assert not np.allclose(models[0].coefficients, models[1].coefficients, atol=1e-3)


def test_params_of_regressions(ps, few):
    assert LinearRegression().setEpsilon(1.5).setSolver("L-BFGS").getEpsilon() == 1.5
    with pytest.raises(
        ValueError, match=r"epsilon given invalid value 1\.0; must be finite and above"
    ):
        LinearRegression(epsilon=1.0)
    with pytest.raises(ValueError, match="loss given invalid value 'absolute'"):
        LinearRegression(loss="absolute")
    with pytest.raises(TypeError, match="did you mean 'solver'"):
        LinearRegression(solvr="normal")
    values = [(1.0, Vectors.sparse(4097, [0], [1.0]))]
    wide = few.sparkSession.createDataFrame(values, ["label", "features"])
    with pytest.raises(ValueError, match="max number of features to 4096 but got 4097"):
        LinearRegression(solver="normal").fit(wide)
    same = few.withColumn("label", F.lit(2.0))
    for solver in ("normal", "l-bfgs"):
        model = LinearRegression(solver=solver, regParam=0.1).fit(same)
        assert not model.coefficients.toArray().any() and model.intercept == 2.0
        assert model.summary.objectiveHistory == [0.0]
        with pytest.raises(ValueError, match=r"Model cannot be regularized"):
            LinearRegression(solver=solver, regParam=0.1, fitIntercept=False).fit(same)
    with pytest.raises(RuntimeError, match="No training summary available"):
        _ = LinearRegressionModel.from_mllib(model.to_mllib()).summary


# Of the labels |y| + 0.5 with regParam 0.1: Params, first coefficients, intercept, deviance, and
# Akaike's criterion, which tweedie families have not.
GENERALIZED = [
    (
        {"family": "poisson"},
        "-.0055115799 -.022176752 .0749473962 .0602765796 -.0244172307",
        2.1642422172,
        2120.4343753082,
        4162.3759401075,
    ),
    (
        {"family": "poisson", "link": "sqrt"},
        "-.0073329421 -.0306761668 .1097822848 .0892044244 -.0334530763",
        2.9516510005,
        2120.8321680520,
        4162.3947075536,
    ),
    (
        {"family": "gamma"},
        ".0006246184 .002457511 -.0085210044",
        0.1151215346,
        314.2762493,
        3122.6047395,
    ),
    (
        {"family": "gamma", "link": "log"},
        "-.0044456799 -.0188185853 .0736708187",
        2.1626449279,
        314.3318020,
        3122.7022354,
    ),
    (
        {"family": "tweedie", "variancePower": 1.5},
        ".0009290145 .0036935819 -.0126406948",
        0.3390879465,
        784.3513802857,
        None,
    ),
    (
        {"family": "gaussian", "link": "log"},
        "-.0068381566 -.0261580756 .0773694864",
        2.1657034988,
        18578.5533863434,
        3255.9680921232,
    ),
]


@pytest.mark.parametrize(
    ("params", "coefficients", "intercept", "deviance", "aic"),
    marked(GENERALIZED, long=GENERALIZED[1:3]),
)
def test_generalized_optima_are_those_of_mllib(
    ps, rows, params, coefficients, intercept, deviance, aic
):
    frame = rows.withColumn("label", F.abs("label") + 0.5)
    tight = {"tol": 1e-12, "maxIter": 50, "regParam": 0.1}
    model = GeneralizedLinearRegression(**tight, **params).fit(frame)
    expected = np.array(coefficients.split(), float)
    assert np.allclose(model.coefficients[: expected.size], expected, atol=1e-9)
    assert model.intercept == pytest.approx(intercept, abs=1e-9)
    assert model.summary.deviance == pytest.approx(deviance, abs=1e-6)
    if aic is not None:
        assert model.summary.aic == pytest.approx(aic, abs=1e-6)
    else:
        with pytest.raises(NotImplementedError, match="No AIC available for the tweedie family"):
            _ = model.summary.aic


def test_least_squares_are_a_generalized_model(ps, rows):
    """Both standardize features and labels before the penalty."""
    model = GeneralizedLinearRegression(regParam=0.3).fit(rows)
    same = LinearRegression(regParam=0.3).fit(rows)
    assert np.array_equal(model.coefficients, same.coefficients)
    expected = (
        ".01054183 .80032531 -.78451655 2.36798872 .50100021 1.12223512 -.29268244 -.49837174 "
        "-.60357972 .67255501"
    )
    assert np.allclose(model.coefficients, np.array(expected.split(), float), atol=1e-8)
    assert model.intercept == pytest.approx(0.14592176145232, abs=1e-12)
    assert model.summary.numIterations == 1 and model.summary.solver == "irls"
    assert np.allclose(model.summary.pValues, same.summary.pValues)


@pytest.mark.parametrize("family", ["poisson", "gamma", "gaussian"])
def test_partitions_of_a_generalized_model_may_lack_columns(ps, spark, family):
    rng = np.random.default_rng(8)
    x = 5.0 + rng.random((40, 4))
    x[:10, 2:], x[10:20, :2], x[20:30, [0, 3]] = 0.0, 0.0, 0.0
    y = np.exp(0.1 * x @ [1.0, -1.0, 0.5, 0.2]) + rng.random(40)
    rows = [(label, Vectors.dense(row)) for label, row in zip(y.tolist(), x, strict=True)]
    models = []
    for parts in (1, 4):
        frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, parts), ["y", "x"])
        given = {"family": family, "link": "log", "labelCol": "y", "featuresCol": "x"}
        models.append(GeneralizedLinearRegression(**given, tol=1e-10, maxIter=50).fit(frame))
    one, several = ([*model.coefficients.toArray(), model.intercept] for model in models)
    np.testing.assert_allclose(several, one, rtol=1e-9)


def test_statistics_of_generalized_models_are_those_of_mllib(ps, few, tmp_path):
    """The values of pyspark's own test of offsets; and shares with numbers of trials."""
    values = [(0.2, 1.0, 2.0, [0.0, 5.0]), (0.5, 2.1, 0.5, [1.0, 2.0])]
    values += [(0.9, 0.4, 1.0, [2.0, 1.0]), (0.7, 0.7, 0.0, [3.0, 3.0])]
    values += [(0.1, 1.0, 0.0, [2.5, 3.5])]
    made = [(*numbers, Vectors.dense(x)) for *numbers, x in values]
    frame = few.sparkSession.createDataFrame(made, ["label", "w", "o", "features"]).coalesce(1)
    four = frame.filter("label != 0.1")
    params = {"family": "poisson", "weightCol": "w", "offsetCol": "o", "linkPredictionCol": "p"}
    model = GeneralizedLinearRegression(**params).fit(four)
    assert np.allclose(model.coefficients, [0.664647, -0.3192581], atol=1e-6)
    assert model.intercept == pytest.approx(-1.561613, abs=1e-6)
    kind = mllib.GeneralizedLinearRegression
    for given in (params, {"weightCol": "w", "family": "binomial", "link": "probit"}):
        model = GeneralizedLinearRegression(**given).fit(frame)
        theirs = kind(**given).fit(frame)
        found, expected = model.summary, theirs.summary
        assert str(found) == str(expected) and "(Intercept)" in str(found)
        names = [name for name in dir(type(expected)) if name[0] != "_"]
        skipped = ("predictions", "residuals", "toArray")
        metrics_agree(found, expected, [name for name in names if name not in skipped])
        for residuals in ("deviance", "pearson", "working", "response"):
            ours, his = found.residuals(residuals), expected.residuals(residuals)
            assert ours.columns == his.columns
            assert np.allclose(ours.collect(), his.collect(), atol=1e-9)
        arrays = frame.withColumn("x", vector_to_array("features"))
        ours = model.copy().setFeaturesCol("x").transform(arrays).drop("x")
        his = theirs.transform(frame)
        assert ours.columns == his.columns
        names = ["p", "prediction"] if "p" in his.columns else ["prediction"]
        assert np.allclose(ours.select(names).collect(), his.select(names).collect(), atol=1e-9)
    assert model.evaluate(frame).deviance == pytest.approx(found.deviance)
    assert model.predict(Vectors.dense([1.0, 2.0])) == pytest.approx(
        theirs.predict(Vectors.dense([1.0, 2.0]))
    )
    with pytest.raises(ValueError, match="The residuals type anscombe is not supported"):
        found.residuals("anscombe")
    check_files(model, mllib.GeneralizedLinearRegressionModel, tmp_path)


def test_params_of_generalized_models(ps, few):
    estimator = GeneralizedLinearRegression(family="Gamma", link="logit")
    with pytest.raises(ValueError, match="Gamma family does not support logit link function"):
        estimator.fit(few)
    with pytest.raises(ValueError, match=r"variancePower given invalid value 0\.5"):
        estimator.setVariancePower(0.5)
    with pytest.raises(ValueError, match=r"partition \d+: The response variable of Gamma family"):
        estimator.setLink("log").fit(few)
    values = [(1.0, Vectors.sparse(4097, [0], [1.0]))]
    wide = few.sparkSession.createDataFrame(values, ["label", "features"])
    with pytest.raises(ValueError, match=r"only supports number of features <= 4096\. Found 4097"):
        GeneralizedLinearRegression().fit(wide)


def test_generalized_models_start_from_others(ps, few, capsys):
    estimator = GeneralizedLinearRegression(family="poisson", tol=1e-10, verbose=True)
    cold = estimator.fit(few)
    assert "iteration" in capsys.readouterr().err
    warm = estimator.copy({estimator.initialModel: cold}).fit(few)
    assert cold.summary.numIterations > 3 >= warm.summary.numIterations
    assert np.allclose(warm.coefficients, cold.coefficients, rtol=1e-8)
    without = estimator.copy({estimator.initialModel: cold, estimator.fitIntercept: False})
    assert without.fit(few).intercept == 0.0
    with pytest.raises(TypeError, match="no Param 'optimizer'"):
        GeneralizedLinearRegression(optimizer="l-bfgs")
