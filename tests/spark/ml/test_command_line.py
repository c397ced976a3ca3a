"""``distvec train``, ``predict`` and ``evaluate`` with ``--master``, beside the same without."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from distvec.command_line import main
from tests.samples import marked

pytestmark = pytest.mark.spark

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(60, 3))
MARGINS = X @ [1.0, -0.5, 0.2] + 0.1 * RANDOM.normal(size=60)


@pytest.mark.parametrize(
    ("loss", "l2"),
    marked([("huber", 0.1), ("quantile", 0.01), ("gamma", 0.1)], long=[("quantile", 0.01)]),
)
def test_losses_train_on_spark(
    ps: object, loss: str, l2: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = np.exp(MARGINS) if loss == "gamma" else MARGINS
    data = tmp_path / "rows.csv"
    table = np.column_stack([labels, X])
    np.savetxt(data, table, delimiter=",", header="label,a,b,c", comments="", fmt="%.17g")
    found = []
    for name, words in (("local", []), ("spark", ["--master", "local[2]"])):
        words = ["--data", str(data), "--model", str(tmp_path / name), *words]
        fit = ["--l2", str(l2), "--tol", "1e-9", "--max-iter", "2000"]
        assert main(["train", loss, *words, *fit]) == 0
        assert main(["evaluate", *words]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        found.append(list(map(json.loads, lines)))
    (local, measured), (served, measured_there) = found
    assert served["objective"] == pytest.approx(local["objective"], rel=1e-5)
    assert measured_there["rmse"] == pytest.approx(measured["rmse"], rel=1e-3)
