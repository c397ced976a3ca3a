import json

import numpy as np
import pytest

from examples.report import Progress, Run, above_best, plot, table, write_json


def run(solver, penalty, values, **more):
    history = [Progress(value, 0.5 * i) for i, value in enumerate(values)]
    fields = {
        "value": values[-1],
        "auc": 0.975,
        "accuracy": 0.9,
        "nonzeros": 1234567,
        "iterations": len(values) - 1,
        "evaluations": len(values) + 1,
        "messages": 6,
        "seconds": 1.5,
        "converged": len(values) < 4,
        "message": "the gradient is small",
    }
    return Run(solver=solver, penalty=penalty, history=history, **fields | more)


RUNS = [
    run("L-BFGS", "L2 0.1", [0.7, 0.3, 0.2]),
    run("OWL-QN", "L1 0.1", [0.7, 0.4]),
    run("SGD", "L2 0.1", [0.7, 0.5, 0.6, 0.25]),
]


def test_table_has_a_line_per_run():
    head, rule, first, second, third = table(RUNS).splitlines()
    assert head.split()[:3] == ["solver", "penalty", "AUC"]
    assert set(rule) == {"-"}
    assert len(head) == len(rule) == len(first) == len(second) == len(third)
    assert first.split()[-6:] == ["0.9000", "1,234,567", "2", "3.0", "1.5", "yes"]
    assert third.split()[-1] == "no"


def test_a_run_without_iterations():
    still = run("L-BFGS", "L2 0", [0.7])
    assert still.requests_per_iteration == 6
    assert "0.9750" in table([still])


def test_gaps_are_to_the_best_of_the_same_objective():
    np.testing.assert_allclose(above_best(RUNS[0], RUNS), [0.5, 0.1, np.nan])
    np.testing.assert_allclose(above_best(RUNS[1], RUNS), [0.3, np.nan])
    np.testing.assert_allclose(above_best(RUNS[2], RUNS), [0.5, 0.3, 0.4, 0.05])


def test_plot_is_a_png(tmp_path):
    path = tmp_path / "new" / "plot.png"
    plot(RUNS, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_json_holds_everything(tmp_path):
    path = tmp_path / "new" / "results.json"
    write_json(RUNS, path, data="made up")
    read = json.loads(path.read_text())
    assert read["data"] == "made up"
    assert [one["solver"] for one in read["runs"]] == ["L-BFGS", "OWL-QN", "SGD"]
    assert read["runs"][2]["history"][1] == pytest.approx({"value": 0.5, "seconds": 0.5})
