"""``distvec train``, ``predict`` and ``evaluate`` on files, beside objectives by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optim
from distvec.command_line import NOT_CONVERGED, main, sparkline
from distvec.losses import Logistic, Model, Objective, Poisson, Rows

RNG = np.random.default_rng(1)
X = RNG.normal(size=(80, 3)).round(3)
X[RNG.random(X.shape) < 0.3] = 0.0
MARGINS = X @ [1.0, -2.0, 0.5] + 0.3
IS_POSITIVE = (MARGINS + RNG.logistic(size=80) > 0).astype(float)
COUNTS = RNG.poisson(np.exp(0.3 * MARGINS)).astype(float)


def write_libsvm(path: Path, labels: Any, base: int = 1) -> str:
    lines = []
    for row, label in zip(X, labels, strict=True):
        pairs = " ".join(f"{j + base}:{v!r}" for j, v in enumerate(row.tolist()) if v)
        lines.append(f"{label:g} {pairs} # a comment")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def write_csv(path: Path, labels: Any, weights: Any = None) -> str:
    columns = {"b": X[:, 0], "label": labels, "a": X[:, 1], "c": X[:, 2]}
    columns |= {} if weights is None else {"w": weights}
    table = np.column_stack(list(columns.values()))
    np.savetxt(path, table, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[Any, str, str]:
    """The last line as JSON, the output, and what was printed to standard error."""
    assert main(words) == code
    printed = capsys.readouterr()
    last = (printed.out.strip() or "null").splitlines()[-1]
    return json.loads(last), printed.out, printed.err


def test_train_predict_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, path = write_libsvm(tmp_path / "rows.svm", IS_POSITIVE), str(tmp_path / "m.safetensors")
    words = ["--l2", "0.01", "--l1", "0.005", "--tol", "1e-9", "--no-standardization"]
    found, printed, progress = run(
        capsys, "train", "logistic", "--data", data, "--model", path, *words
    )
    objective = Objective(
        (X, IS_POSITIVE), loss=Logistic(), penalty=optim.ElasticNet(0.005, 0.01), intercept=True
    )
    best = objective.minimize(gradient_tolerance=1e-9)
    assert found["objective"] == pytest.approx(best.fun, abs=1e-12)
    assert found["converged"] and found["rows"] == 80 and found["features"] == 3
    assert "iteration" in progress and "convergence" in printed
    model = Model.load(path)
    np.testing.assert_allclose(model.x, best.x, atol=1e-7)

    run(capsys, "predict", "--data", data, "--model", path, "--output", str(tmp_path / "out"))
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "out"), model.predict(X))
    assert main(["predict", "--data", data, "--model", path, "--probabilities"]) == 0
    printed = capsys.readouterr()
    table = np.loadtxt(io.StringIO(printed.out), delimiter=",")
    np.testing.assert_allclose(table, model.probabilities(X))
    assert json.loads(printed.err)["rows"] == 80

    measured, *_ = run(capsys, "evaluate", "--data", data, "--model", path)
    assert measured["accuracy"] == pytest.approx(np.mean(model.predict(X) == IS_POSITIVE))
    above = np.subtract.outer(
        model.margins(X)[IS_POSITIVE == 1], model.margins(X)[IS_POSITIVE == 0]
    )
    assert measured["auc"] == pytest.approx(np.mean(above > 0) + 0.5 * np.mean(above == 0))
    own = model.probabilities(X)[np.arange(80), IS_POSITIVE.astype(int)]
    assert measured["log_loss"] == pytest.approx(-np.mean(np.log(own)))


def test_columns_have_names_and_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = RNG.integers(0, 4, 80).astype(float)
    data, path = write_csv(tmp_path / "rows.csv", COUNTS, weights), str(tmp_path / "model")
    words = ["--weight-col", "w", "--reg-param", "0.1", "--tol", "1e-9"]
    run(capsys, "train", "poisson", "--data", data, "--model", path, *words, "--quiet")
    rows = Rows(X[:, [0, 1, 2]], COUNTS, weights)
    penalty = optim.SquaredL2Norm(0.1)
    best = Objective(
        rows, loss=Poisson(), penalty=penalty, intercept=True, standardization=True
    ).minimize(gradient_tolerance=1e-9)
    model = Model.load(path)
    assert model.columns == ("b", "a", "c")
    np.testing.assert_allclose(model.x, best.x, atol=1e-7)
    shuffled = tmp_path / "new.csv"
    np.savetxt(shuffled, X[:, [2, 1, 0]], delimiter=",", header="c,a,b", comments="", fmt="%.17g")
    run(capsys, "predict", "--data", str(shuffled), "--model", path, "--output", f"{path}.txt")
    np.testing.assert_allclose(np.loadtxt(f"{path}.txt"), model.predict(X))
    measured, *_ = run(capsys, "evaluate", "--data", data, "--model", path, "--weight-col", "w")
    far = model.predict(X) - COUNTS
    assert measured["rmse"] == pytest.approx(np.sqrt(np.average(far**2, weights=weights)))


def test_parquet_has_lists_or_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    found = []
    for name, columns in (
        ("lists", {"label": MARGINS, "features": X.tolist()}),
        ("columns", {"label": MARGINS, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}),
    ):
        data, path = str(tmp_path / f"{name}.parquet"), str(tmp_path / f"{name}.safetensors")
        parquet.write_table(pyarrow.table(columns), data)
        found.append(run(capsys, "train", "linear", "--data", data, "--model", path)[0])
    assert found[0]["r2"] == found[1]["r2"] == pytest.approx(1.0)


@pytest.mark.parametrize("loss", ["svm", "huber", "gamma", "tweedie", "quantile", "logistic"])
def test_each_loss_trains(loss: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {
        "svm": IS_POSITIVE,
        "logistic": np.digitize(MARGINS, [-1.0, 1.0]).astype(float),
    }.get(loss, np.exp(0.3 * MARGINS))
    data, path = write_libsvm(tmp_path / "rows.txt", labels, base=0), str(tmp_path / "m")
    words = ["--index-base", "0", "--l2", "0.01", "--max-iter", "5000", "--quiet"]
    found, *_ = run(capsys, "train", loss, "--data", data, "--model", path, *words)
    quality = found.get("accuracy", found.get("r2"))
    assert quality > 0.6
    measured, *_ = run(capsys, "evaluate", "--data", data, "--model", path, "--index-base", "0")
    assert measured.get("accuracy", measured.get("r2")) == pytest.approx(quality)


def test_a_file_of_parameters_and_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, path = write_libsvm(tmp_path / "rows.svm", IS_POSITIVE), str(tmp_path / "m")
    file = tmp_path / "p.json"
    file.write_text('{"maxIter": 1, "reg-param": 0.25, "fit_intercept": false, "tol": 1e-12}')
    plot = str(tmp_path / "c.svg")
    words = ["train", "logistic", "--data", data, "--model", path, "--param-file", str(file)]
    found, *_ = run(capsys, *words, "--plot", plot, code=NOT_CONVERGED)
    assert found["iterations"] == 1 and not Model.load(path).has_intercept
    assert "<svg" in Path(plot).read_text()
    found, *_ = run(capsys, *words, "--max-iter", "100")  # an option goes before the file
    assert found["converged"]
    file.write_text('{"regparm": 0.25}')
    _, _, error = run(capsys, *words, code=1)
    assert "unknown 'regparm'; allowed: reg-param" in error


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        ("1 1:2\n", ["--l1", "1", "--reg-param", "1"], "not both"),
        ("1 0:2\n0 1:1\n", [], "give --index-base 0"),
        ("1 1:2\n0 5:1\n", ["--num-features", "4"], "feature 5 is beyond"),
        ("one 1:2\n", [], "line 1: 'one' is no label"),
        ("1 1:2\n0 a\n", [], "line 2: 'a' is no index:value"),
        ("# rows\n1 1:2\n\n0 1:2 2.5:1\n", [], "line 4: '2.5:1' is no index:value"),
        ("1 1:2\n0 1:2 3\n", [], "line 2: '3' is no index:value"),
        ("1 1:2\n0 1:2:3\n", [], "line 2: '1:2:3' is no index:value"),
        ("1 1:2\n0 1:nan\n", [], "line 2: a feature is NaN"),
        ("1 1:2\nnan 1:1\n", [], "line 2: the label is nan"),
        ("1 1:2\n0 1:1 -3:1\n", ["--index-base", "0"], "line 2: the index -3 is below 0"),
        ("# rows\n", [], "has no rows"),
        ("", [], "has no rows"),
        ("1 1:2\n0 1:1\n2 1:1\n-1 1:3\n", [], "label"),
    ],
)
def test_errors_say_what_to_type(
    text: str, words: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rows.svm"
    data.write_text(text)
    command = ["train", "logistic", "--data", str(data), "--model", str(tmp_path / "m")]
    assert error in run(capsys, *command, *words, code=1)[2]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", "rows.csv: has no rows"),
        (b"label,a\n", "rows.csv: has no rows after the header"),
        (b"label,a\n1,2\n0,\n", "rows.csv: line 3: a is ''; must be a number"),
        (b"label,a\n1,2\n\n0,x\n", "rows.csv: line 4: a is 'x'; must be a number"),
        (b"label,a\n1,2\n0\n", "rows.csv: line 3: has 1 columns, the first line 2"),
        (b"label,a\n1,2,3\n0,1,3\n", "rows.csv: line 2: has 3 columns, the first line 2"),
        (b"label,a\n1,2\n0,nan\n", "rows.csv: line 3: a feature is NaN"),
        (b"label,a\n1,2\ninf,1\n", "rows.csv: line 3: the label is inf"),
        (b"label,a,a\n1,2,2\n", "rows.csv: line 1: repeats the column 'a'"),
        (b"label\n1\n", "rows.csv: has no columns of features"),
        (b"label,a\n1,2\n\x8f\xff\x00", "rows.csv: line 3: is no text"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(
    text: bytes, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rows.csv"
    data.write_bytes(text)
    command = ["train", "linear", "--data", str(data), "--model", str(tmp_path / "m")]
    printed = run(capsys, *command, code=1)[2]
    assert error in printed and len(printed.splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_wrong_parquet_weights_and_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    data, model = tmp_path / "rows.parquet", tmp_path / "m.safetensors"
    start = ["train", "linear", "--data", str(data), "--model", str(model)]
    for columns, error in (
        ({"label": [1.0, 2.0], "a": [1.0, None]}, "row 2: a feature is NaN"),
        ({"label": [1.0, 2.0], "a": ["x", "y"]}, "the column a has the type object"),
        ({"label": [1.0, 2.0], "a": [[1.0], [1.0, 2.0]]}, "have different lengths"),
    ):
        parquet.write_table(pyarrow.table(columns), data)
        assert error in run(capsys, *start, code=1)[2]
    data.write_bytes(data.read_bytes()[:-40])
    assert "rows.parquet: is no Parquet file" in run(capsys, *start, code=1)[2]

    rows = write_csv(tmp_path / "rows.csv", MARGINS, np.where(np.arange(80) == 4, -1.0, 1.0))
    start = ["train", "linear", "--data", rows, "--model", str(model)]
    message = run(capsys, *start, "--weight-col", "w", code=1)[2]
    assert "rows.csv: line 6: the weight is -1.0" in message
    run(capsys, *start, "--quiet")
    model.write_bytes(model.read_bytes()[:20])
    message = run(capsys, "evaluate", "--data", rows, "--model", str(model), code=1)[2]
    assert str(model) in message and len(message.splitlines()) == 1
    message = run(capsys, "evaluate", "--data", rows, "--model", f"{model}2", code=1)[2]
    assert f"{model}2" in message


def test_rows_from_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(write_libsvm(tmp_path / "rows.svm", IS_POSITIVE))
    models = []
    for name in (str(file), "-"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        path = str(tmp_path / "m.safetensors")
        run(capsys, "train", "logistic", "--data", name, "--model", path, "--quiet")
        models.append(Model.load(path).x)
    np.testing.assert_array_equal(*models)


def test_unknown_suffixes_and_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_csv(tmp_path / "rows.csv", COUNTS)
    start = ["train", "poisson", "--model", str(tmp_path / "m"), "--data"]
    assert "give --format" in run(capsys, *start, "rows.xyz", code=1)[2]
    message = run(capsys, *start, data, "--label-col", "y", code=1)[2]
    assert "--label-col 'y' is not in" in message and "columns: b, label, a, c" in message


def test_sparklines_fall() -> None:
    assert sparkline([1.0]) == ""
    drawn = sparkline([1.0 + 10.0**-k for k in range(12)])
    assert drawn[0] == "█" and drawn[-1] == "▁" and list(drawn) == sorted(drawn, reverse=True)
