"""The example as a whole, on few rows."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distvec.spark import PSContext
from examples import logistic_regression
from tests.samples import marked
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def test_a_libsvm_file(one_spark, tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 5))
    lines = [
        f"{int(row @ [1, -2, 3, 0, 1] > 0)} " + " ".join(f"{k + 1}:{v}" for k, v in enumerate(row))
        for row in rows
    ]
    data = tmp_path / "rows.svm"
    data.write_text("\n".join(lines))
    output = tmp_path / "results"
    logistic_regression.main(
        ["--data", str(data), "--iterations", "4", "--servers", "1", "--output", str(output)]
    )
    shown = capsys.readouterr()
    runs = json.loads((output / "results.json").read_text())["runs"]
    assert [run["solver"] for run in runs] == ["L-BFGS", "OWL-QN", "SGD"]
    assert all(run["auc"] > 0.9 and run["iterations"] == 4 for run in runs)
    assert all(run["solver"] in shown.out for run in runs)
    assert "SGD did not converge: Stopped: the limit of iterations" in shown.out
    assert (output / "convergence.png").stat().st_size > 10_000
    assert PSContext._active is None
    assert shown.err.count("\r") <= 9, "a log file gets a few lines for each solver, not hundreds"


USELESS = [
    ("1 1:1\n0 1:nan\n", [], "line 2: '1:nan' is not"),
    (None, [], "no such file"),
    ("1 1:1\n0 1:2\n", ["--positive-label", "7"], "no row has --positive-label 7"),
]


@pytest.mark.parametrize(("text", "options", "told"), marked(USELESS, long=USELESS[1:]))
def test_a_file_that_is_of_no_use_ends_the_program_before_spark(tmp_path, text, options, told):
    data = tmp_path / "rows.svm"
    if text is not None:
        data.write_text(text)
    command = [sys.executable, "-m", "examples.logistic_regression", "--data", data, *options]
    ended = subprocess.run(
        [*command, "--output", tmp_path / "results"],
        cwd=ROOT,
        env={
            "PATH": "/nowhere",
            "PYTHONPATH": str(ROOT),
        },  # Spark could not start: there is no Java
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert str(data) in ended.stderr
    assert told in ended.stderr


def test_too_few_rows_to_hold_some_out(one_spark, tmp_path):
    data = tmp_path / "rows.svm"
    data.write_text("1 1:1\n0 1:2\n")
    with pytest.raises(
        SystemExit, match=r"rows\.svm: the .* have too few labels .* give more rows"
    ):
        logistic_regression.main(["--data", str(data), "--output", str(tmp_path / "results")])
    assert PSContext._active is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--servers", "0"], "argument --servers: '0' is not 1, 2, 3, ..."),
        (["--iterations", "1.5"], "argument --iterations: '1.5' is not 1, 2, 3, ..."),
        (["--l2", "-1"], "argument --l2: '-1' is not a finite number, 0 or more"),
        (["--l1", "nan"], "argument --l1: 'nan' is not a finite number, 0 or more"),
        (["--positive-label", "2"], "--positive-label is for --data FILE.svm"),
        (["--output", "/dev/null/x"], "--output /dev/null/x: Not a directory"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(options, told, capsys):
    with pytest.raises(SystemExit):
        logistic_regression.parse(options)
    assert told in capsys.readouterr().err
