"""The ``distvec`` command: that of servers, and ``train``, ``predict`` and ``evaluate``.

They read files of rows and fit an objective of ``distvec.losses`` in this process, or an estimator
of ``distvec.spark.ml`` with ``--master``.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from distvec import losses
from distvec.dashboard.dashboard import open_for_servers
from distvec.losses.loss import Loss
from distvec.objectives.local import Objective
from distvec.objectives.model import Model
from distvec.row_files import FORMATS, Table, format_of, read_rows
from optim import ElasticNet, State
from ps_backend.client.status import ServerStatus
from ps_backend.processes.cli import add_servers, asked_servers, run_command
from ps_backend.processes.cli import command_parser as server_parser

Floats = npt.NDArray[np.float64]

NOT_CONVERGED = 3
"""The exit code if a model was saved but the solver reached a limit."""

_LOSSES = {
    "logistic": "Logistic regression, multinomial for more than two classes",
    "svm": "Linear support vector machine with the squared hinge loss",
    "linear": "Least squares",
    "huber": "Huber's loss",
    "poisson": "Counts with the mean exp(margin)",
    "gamma": "Positive numbers with the mean exp(margin)",
    "tweedie": "Numbers of 0 and more with the mean exp(margin)",
    "quantile": "A quantile, with a smoothed loss",
}

_ON_SPARK = {
    "logistic": ("classification", "LogisticRegression"),
    "svm": ("classification", "LinearSVC"),
    "linear": ("regression", "LinearRegression"),
}

_BARS = "▁▂▃▄▅▆▇█"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_command(lambda: _parsed(words))


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options, with those of ``--param-file`` as defaults."""
    parser = command_parser()
    options = parser.parse_args(words)
    file = getattr(options, "param_file", None)
    if file is None:
        return options
    given = json.loads(Path(file).read_text())
    if not isinstance(given, dict):
        raise ValueError(f'--param-file {file}: must be an object, such as {{"reg-param": 0.1}}')
    known = [name for name in vars(options) if name not in ("command", "run", "param_file")]
    found = {}
    for key, value in given.items():
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower().replace("-", "_")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1) or sorted(known)
            allowed = ", ".join(one.replace("_", "-") for one in near)
            raise ValueError(f"--param-file {file}: unknown {key!r}; allowed: {allowed}")
        found[name] = value
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.choices[options.command].set_defaults(**found)
    return parser.parse_args(words)


def command_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line; ``docs/reference/cli.md`` is made from it, too."""
    parser = server_parser()
    parser.description = "Run parameter servers, look at running ones, and fit models of files."
    commands = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    _add_dashboard(commands)
    _add_train(commands)
    for name, run, text in (
        ("predict", _predict, "Write the predictions of a model, one line for each row"),
        ("evaluate", _evaluate, "Measure a model on rows with labels"),
    ):
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text}.\nThe last line is JSON.",
            epilog=f"example:\n  distvec {name} --data test.svm --model model.safetensors",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=run)
        _add_data(command)
        if name == "predict":
            command.add_argument(
                "--probabilities",
                action="store_true",
                help="Write the probability of each class instead of the label",
            )
            command.add_argument(
                "--output",
                metavar="FILE",
                help="File for the predictions (default: standard output; JSON then goes to "
                "standard error)",
            )
    return parser


def _add_dashboard(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    dashboard = commands.add_parser(
        "dashboard",
        help="Show running servers on a web page",
        description="Show running servers on a web page until Ctrl-C. The page is on this "
        "machine's loopback\naddress, and the command prints its link. It does not change the "
        "servers.\nThe page of a session shows more: Session.dashboard().",
        epilog="example:\n  distvec dashboard 10.0.0.5:7070,10.0.0.6:7070 --token-file "
        "/etc/distvec/token",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    dashboard.set_defaults(run=_dashboard)
    add_servers(dashboard)
    dashboard.add_argument(
        "--port",
        type=int,
        default=0,
        help="Port of the page; 0 selects a free port (default: %(default)s)",
    )


def _dashboard(options: argparse.Namespace) -> int:
    def ask() -> list[ServerStatus]:
        return asked_servers(options, metrics=True)

    ask()  # an error in the addresses or the token ends the command
    with open_for_servers(ask, port=options.port) as page:
        print(page, flush=True)
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        while not stop.wait(1.0):
            pass
    return 0


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    train = commands.add_parser(
        "train",
        help="Fit a model to the rows of a file",
        description="Fit a linear model to the rows of a file, and save it. Progress goes to "
        "standard error.\nThe last line of the output is JSON. The exit code is "
        f"{NOT_CONVERGED} if the solver reached a limit.",
        epilog="example:\n  distvec train logistic --data train.svm --l2 1e-4 --model "
        "model.safetensors",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    train.set_defaults(run=_train)
    kinds = "; ".join(f"{name}: {text}" for name, text in _LOSSES.items())
    train.add_argument("loss", choices=sorted(_LOSSES), metavar="LOSS", help=kinds)
    _add_data(train)
    fit = train.add_argument_group("fit")
    fit.add_argument(
        "--l1", type=float, metavar="NUMBER", help="Weight of the l1 norm (default: 0)"
    )
    fit.add_argument(
        "--l2", type=float, metavar="NUMBER", help="Weight of half the squared l2 norm (default: 0)"
    )
    fit.add_argument(
        "--reg-param",
        type=float,
        default=0.0,
        metavar="NUMBER",
        help="Weight of the penalty, instead of --l1 and --l2 (default: %(default)g)",
    )
    fit.add_argument(
        "--elastic-net-param",
        type=float,
        default=0.0,
        metavar="NUMBER",
        help="The part of the l1 norm in the penalty, 0 to 1 (default: %(default)g)",
    )
    fit.add_argument(
        "--max-iter",
        type=int,
        default=1000,
        metavar="COUNT",
        help="Largest number of iterations (default: %(default)d)",
    )
    fit.add_argument(
        "--tol",
        type=float,
        default=1e-6,
        metavar="NUMBER",
        help="Tolerance on the gradient, or with --master on the gain (default: %(default)g)",
    )
    fit.add_argument(
        "--fit-intercept",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Fit an intercept (default: yes)",
    )
    fit.add_argument(
        "--standardization",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Penalize the coefficients of features with standard deviation 1 (default: yes)",
    )
    fit.add_argument(
        "--solver", metavar="NAME", help="Solver of optim, such as L-BFGS (default: one that fits)"
    )
    fit.add_argument(
        "--positive-label",
        type=float,
        metavar="NUMBER",
        help="The positive of two classes (default: 1)",
    )
    fit.add_argument(
        "--threshold",
        type=float,
        default=1.0,
        metavar="NUMBER",
        help="Of huber: the residual beyond which the loss is linear (default: %(default)g)",
    )
    fit.add_argument(
        "--variance-power",
        type=float,
        default=1.5,
        metavar="NUMBER",
        help="Of tweedie: the power, between 1 and 2 (default: %(default)g)",
    )
    fit.add_argument(
        "--quantile",
        type=float,
        default=0.5,
        metavar="NUMBER",
        help="Of quantile: the quantile, between 0 and 1 (default: %(default)g)",
    )
    train.add_argument("--param-file", metavar="FILE", help="JSON object of options by name")
    train.add_argument(
        "--plot", metavar="FILE", help="Draw the convergence into a file; needs matplotlib"
    )
    train.add_argument("--quiet", action="store_true", help="Print no progress")


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data", required=True, metavar="FILE", help="The rows; - is libsvm from standard input"
    )
    command.add_argument(
        "--model", required=True, metavar="PATH", help="The model: a folder or a .safetensors file"
    )
    data = command.add_argument_group("data")
    data.add_argument(
        "--format",
        choices=FORMATS,
        help="Format of the data (default: by the suffix)",
    )
    data.add_argument(
        "--label-col",
        default="label",
        metavar="NAME",
        help="Column of labels of csv, tsv and parquet; without a header the first "
        "(default: %(default)s)",
    )
    data.add_argument(
        "--weight-col", metavar="NAME", help="Column of row weights (default: no weights)"
    )
    data.add_argument(
        "--num-features",
        type=int,
        metavar="COUNT",
        help="Number of features of libsvm rows (default: the largest)",
    )
    data.add_argument(
        "--index-base",
        type=int,
        choices=(0, 1),
        default=1,
        help="Index of the first feature of libsvm rows (default: %(default)d)",
    )
    data.add_argument(
        "--master",
        metavar="URL",
        help="Master of a Spark cluster, for an estimator of distvec.spark.ml (default: no Spark)",
    )


# --- commands -------------------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> int:
    reg_param, part = _penalty(options)
    began = time.perf_counter()
    if options.master is not None:
        return _train_on_spark(options, reg_param, part, began)
    table = read_rows(options)
    read = time.perf_counter()
    objective = Objective(
        losses.Rows(table.matrix, table.labels, table.weights),
        loss=_loss_of(options, table.labels),
        penalty=ElasticNet(l1=reg_param * part, l2=reg_param * (1.0 - part)),
        intercept=options.fit_intercept,
        standardization=options.standardization,
        positive_label=options.positive_label,
    )
    progress = _Progress(quiet=options.quiet)
    found = objective.minimize(
        method=options.solver,
        callback=progress,
        max_iterations=options.max_iter,
        gradient_tolerance=options.tol,
    )
    model = objective.model(found.x)
    if table.names is not None:
        model.columns = tuple(table.names)
    model.save(options.model)
    if options.plot is not None:
        _plot(options.plot, progress.values)
    seconds = time.perf_counter() - read
    lines = {
        "loss": str(objective.loss),
        "rows": objective.rows,
        "features": objective.features,
        "objective": float(found.fun),
        "iterations": int(found.nit),
        "evaluations": int(found.nfev),
        "converged": bool(found.success),
        "message": found.message,
        "seconds_to_read": round(read - began, 3),
        "seconds": round(seconds, 3),
        "rows_per_second": round(objective.rows * found.nfev / seconds),
        "nonzeros": _nonzeros(model),
        **_measured(model, table),
        "model": str(options.model),
    }
    _print(lines, progress.values)
    return 0 if found.success else NOT_CONVERGED


def _penalty(options: argparse.Namespace) -> tuple[float, float]:
    """The weight of the penalty, and the part of the l1 norm."""
    if options.l1 is None and options.l2 is None:
        return options.reg_param, options.elastic_net_param
    if options.reg_param or options.elastic_net_param:
        raise ValueError("give --l1 and --l2, or --reg-param and --elastic-net-param, not both")
    l1, l2 = options.l1 or 0.0, options.l2 or 0.0
    return l1 + l2, l1 / (l1 + l2) if l1 else 0.0


def _loss_of(options: argparse.Namespace, labels: Floats) -> Loss:
    match options.loss:
        case "logistic":
            distinct = np.unique(labels)
            return losses.Softmax() if len(distinct) > 2 else losses.Logistic()
        case "huber":
            return losses.Huber(threshold=options.threshold)
        case "tweedie":
            return losses.Tweedie(power=options.variance_power)
        case "quantile":
            smoothing = 1e-4 * (float(np.std(labels)) or 1.0)
            return losses.Quantile(quantile=options.quantile, smoothing=smoothing)
    kinds = {"svm": losses.SquaredHinge, "linear": losses.Squared}
    kinds |= {"poisson": losses.Poisson, "gamma": losses.Gamma}
    return kinds[options.loss]()


def _predict(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    if options.master is not None:
        return _predict_on_spark(options)
    model = Model.load(options.model)
    table = _rows_for(model, options)
    found = (model.probabilities if options.probabilities else model.predict)(table.matrix)
    target = sys.stdout if options.output is None else options.output
    np.savetxt(target, found, fmt="%.17g", delimiter=",")
    lines = {"rows": len(found), "seconds": round(time.perf_counter() - began, 3)}
    print(json.dumps(lines), file=sys.stderr if options.output is None else sys.stdout)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    if options.master is not None:
        return _evaluate_on_spark(options)
    model = Model.load(options.model)
    table = _rows_for(model, options)
    if np.isnan(table.labels).any():
        raise ValueError(f"--label-col {options.label_col!r} is not in {options.data}")
    lines = {"loss": str(model.loss), "rows": len(table.labels), **_measured(model, table)}
    _print({**lines, "seconds": round(time.perf_counter() - began, 3)})
    return 0


def _rows_for(model: Model, options: argparse.Namespace) -> Table:
    """The rows, with the model's features."""
    if options.num_features is None:
        options.num_features = model.num_features
    named = None if isinstance(model.columns, str) else model.columns
    return read_rows(options, named)


def _nonzeros(model: Model) -> int:
    return sum(int(np.count_nonzero(array)) for array in model.arrays)


def _measured(model: Model, table: Table) -> dict[str, float]:
    """How good the predictions are, as weighted means."""
    predicted, labels, weights = model.predict(table.matrix), table.labels, table.weights
    if model.loss.labels not in ("signs", "classes"):
        far = predicted - labels
        mean = np.average(labels, weights=weights)
        spread = float(np.average((labels - mean) ** 2, weights=weights))
        squares = float(np.average(far**2, weights=weights))
        return {
            "rmse": math.sqrt(squares),
            "mae": float(np.average(np.abs(far), weights=weights)),
            "r2": 1.0 - squares / spread if spread else math.nan,
        }
    found = {"accuracy": float(np.average(predicted == labels, weights=weights))}
    if isinstance(model.loss, (losses.Logistic, losses.Softmax)):
        is_pair = isinstance(model.loss, losses.Logistic)
        places = (labels == model.classes[1] if is_pair else labels).astype(np.intp)
        own = model.probabilities(table.matrix)[np.arange(len(labels)), places]
        with np.errstate(divide="ignore"):
            found["log_loss"] = float(-np.average(np.log(own), weights=weights))
    if model.loss.labels == "signs":
        found["auc"] = _auc(model.margins(table.matrix), labels == model.classes[1])
    return found


def _auc(margins: Floats, is_positive: npt.NDArray[np.bool_]) -> float:
    """The area under the ROC curve: how often a positive row has the larger margin."""
    positive = int(is_positive.sum())
    pairs = positive * (len(margins) - positive)
    least = positive * (positive + 1) / 2
    return float((rankdata(margins)[is_positive].sum() - least) / pairs) if pairs else math.nan


# --- output ---------------------------------------------------------------------------------------


class _Progress:
    """Prints iterations 1, 2, 4, 8, ... to standard error, and keeps all values."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet, self.began, self.next = quiet, time.perf_counter(), 1
        self.values: list[float] = []

    def __call__(self, state: State) -> None:
        self.values.append(float(state.value))
        if self.quiet or state.iteration < self.next:
            return
        if self.next == 1:
            print(
                f"{'iteration':>9} {'objective':>16} {'gradient':>10} {'seconds':>8}",
                file=sys.stderr,
            )
        seconds = time.perf_counter() - self.began
        values = f"{state.value:>16.9g} {state.gradient_norm:>10.3g} {seconds:>8.2f}"
        print(f"{state.iteration:>9} {values}", file=sys.stderr)
        self.next *= 2


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A line of bars: how far the logarithm of each value is above the least."""
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if numbers.size < 2:
        return ""
    chosen = numbers[np.unique(np.linspace(0, numbers.size - 1, width).astype(int))]
    above = chosen - numbers.min()
    floor = max(above.max() * 1e-12, 1e-300)
    heights = np.log10(np.maximum(above, floor) / floor)
    tops = heights.max() or 1.0
    return "".join(_BARS[round(height / tops * (len(_BARS) - 1))] for height in heights)


def _plot(path: str, values: Sequence[float]) -> None:
    """A picture in a file; without matplotlib only the line of bars of the table."""
    try:
        figure = import_module("matplotlib.figure").Figure(figsize=(6, 4))
    except ImportError:
        print(f"--plot {path}: needs matplotlib; the table has the picture", file=sys.stderr)
        return
    axes = figure.subplots()
    least = min(values, default=0.0)
    axes.semilogy(range(1, len(values) + 1), np.maximum(np.array(values) - least, 1e-16))
    axes.set_xlabel("iteration")
    axes.set_ylabel("objective above the least value")
    figure.savefig(path)


def _print(lines: Mapping[str, Any], values: Sequence[float] = ()) -> None:
    """A table, the convergence, and JSON as the last line."""
    for name, value in lines.items():
        shown = f"{value:.8g}" if isinstance(value, float) else f"{value}"
        print(f"{name.replace('_', ' '):<16} {shown}")
    if picture := sparkline(values):
        print(f"{'convergence':<16} {picture}")
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in lines.items()
    }
    print(json.dumps(finite))


# --- Spark ----------------------------------------------------------------------------------------


def _frame(options: argparse.Namespace) -> tuple[Any, Any]:
    """The rows as a DataFrame, and its column of features, or their names."""
    builder = import_module("pyspark.sql").SparkSession.builder
    spark = builder.master(options.master).appName("distvec").getOrCreate()
    kind = format_of(options)
    reader = spark.read.format("csv" if kind == "tsv" else kind)
    if kind == "libsvm":
        if options.index_base != 1:
            raise ValueError("--master reads libsvm rows with --index-base 1")
        if options.num_features is not None:
            reader = reader.option("numFeatures", options.num_features)
        return reader.load(options.data), "features"
    if kind in ("csv", "tsv"):
        reader = reader.option("header", True).option("inferSchema", True)
        reader = reader.option("sep", "," if kind == "csv" else "\t")
    frame = reader.load(options.data)
    names = [name for name in frame.columns if name not in (options.label_col, options.weight_col)]
    return frame, names[0] if names == ["features"] else names


def _train_on_spark(
    options: argparse.Namespace, reg_param: float, part: float, began: float
) -> int:
    frame, features = _frame(options)
    module, name = _ON_SPARK.get(options.loss, ("losses", "LossEstimator"))
    given = {} if options.loss in _ON_SPARK else {"loss": _loss_on_spark(options, frame)}
    estimator = getattr(import_module(f"distvec.spark.ml.{module}"), name)(
        **given,
        featuresCol=features,
        labelCol=options.label_col,
        regParam=reg_param,
        maxIter=options.max_iter,
        tol=options.tol,
        fitIntercept=options.fit_intercept,
        standardization=options.standardization,
    )
    if part:
        if not estimator.hasParam("elasticNetParam"):
            raise ValueError(f"{options.loss} has no l1 norm with --master; leave --l1 out")
        estimator.setElasticNetParam(part)
    if options.weight_col is not None:
        estimator.setWeightCol(options.weight_col)
    model = estimator.fit(frame)
    model.write().overwrite().save(options.model)
    summary: Any = model.summary
    summary = summary() if callable(summary) else summary
    values = list(map(float, summary.objectiveHistory))
    if options.plot is not None:
        _plot(options.plot, values)
    lines = {
        "loss": options.loss,
        "features": int(model.numFeatures),
        "objective": values[-1],
        "iterations": int(summary.totalIterations),
        "seconds": round(time.perf_counter() - began, 3),
        "model": str(options.model),
    }
    _print(lines, values)
    return 0


def _loss_on_spark(options: argparse.Namespace, frame: Any) -> Loss:
    """The loss; a quantile is smoothed by the deviation of the labels."""
    labels: Any = ()
    if options.loss == "quantile":
        functions = import_module("pyspark.sql.functions")
        labels = frame.select(functions.stddev_pop(options.label_col)).first()
        labels = [-labels[0], labels[0]]
    return _loss_of(options, np.asarray(labels, np.float64))


def _scored_on_spark(options: argparse.Namespace) -> tuple[Any, bool]:
    """The rows with the columns of the model that ``train --master`` saved; whether the model is
    one of classes."""
    frame, _ = _frame(options)
    reader = import_module("pyspark.ml.util").DefaultParamsReader
    model = reader.loadParamsInstance(options.model, frame.sparkSession)
    fitted = getattr(model, "fitted", None)
    kinds = ("signs", "classes")
    is_of_classes = fitted.loss.labels in kinds if fitted else hasattr(model, "numClasses")
    return model.transform(frame), is_of_classes


def _predict_on_spark(options: argparse.Namespace) -> int:
    scored, _ = _scored_on_spark(options)
    column = "probability" if options.probabilities else "prediction"
    if options.output is None:
        raise ValueError("--master needs --output, a folder that Spark writes")
    scored.select(scored[column].cast("string")).write.mode("overwrite").text(options.output)
    print(json.dumps({"rows": scored.count(), "output": options.output}))
    return 0


def _evaluate_on_spark(options: argparse.Namespace) -> int:
    scored, is_of_classes = _scored_on_spark(options)
    evaluation = import_module("pyspark.ml.evaluation")
    if is_of_classes:
        evaluator, names = evaluation.MulticlassClassificationEvaluator, ["accuracy"]
        names += ["logLoss"] if "probability" in scored.columns else []
    else:
        evaluator, names = evaluation.RegressionEvaluator, ["rmse", "mae", "r2"]
    each = evaluator(labelCol=options.label_col)
    found = {name: each.setMetricName(name).evaluate(scored) for name in names}
    _print({"rows": scored.count(), **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
