"""The example as a whole, on few rows."""

import json

import numpy as np

from distvec.spark import PSContext
from examples import logistic_regression


def test_a_libsvm_file(one_spark, tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 5))
    lines = [
        f"{int(row @ [1, -2, 3, 0, 1] > 0)} " + " ".join(f"{k + 1}:{v}" for k, v in enumerate(row))
        for row in rows
    ]
    data = tmp_path / "rows.svm"
    data.write_text("\n".join(lines))
    if PSContext._active is not None:
        PSContext._active.stop()
    output = tmp_path / "results"
    logistic_regression.main(
        ["--data", str(data), "--iterations", "4", "--servers", "1", "--output", str(output)]
    )
    shown = capsys.readouterr()
    runs = json.loads((output / "results.json").read_text())["runs"]
    assert [run["solver"] for run in runs] == ["L-BFGS", "OWL-QN", "SGD"]
    assert all(run["auc"] > 0.9 and run["iterations"] == 4 for run in runs)
    assert all(run["solver"] in shown.out for run in runs)
    assert (output / "convergence.png").stat().st_size > 10_000
    assert PSContext._active is None
    assert shown.err.count("\r") <= 9, "a log file gets a few lines for each solver, not hundreds"
