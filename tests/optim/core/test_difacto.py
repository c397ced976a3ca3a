"""The trajectories that DiFacto's tests list, on its 100 rows of RCV1.

M. Li, Z. Liu, A. J. Smola, Y.-X. Wang, DiFacto: distributed factorization machines, WSDM 2016;
tests/cpp/{sgd,bcd,lbfgs}_learner_test.cc of github.com/dmlc/difacto, whose numbers are of float32.
The rows are its file tests/data: DIFACTO_DATA=/path/to/it runs what is skipped without.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from optim import FTRL, LBFGS, OWLQN, with_l2
from optim.line_search import Ray, Trial

FTRL_LOSSES = """69.314718 69.314718 67.151912 61.414778 56.244989 53.218700 51.248737 49.846688
48.650164 47.698351 46.924038 46.388223 45.970721 45.499307 45.102245 44.798413 44.565211 44.386417
44.240657 44.109764"""
LINEAR_VALUES = """34.603421 12.655075 5.224232 2.713903 1.290586 0.645131 0.317889 0.156723
0.075331 0.032091 0.018044 0.008562 0.004336 0.002132 0.001051 0.000506 0.000227 0.000119
0.000059"""
MACHINE_VALUES = """35.224265 21.631514 18.394319 16.077692 12.389012 8.888516 8.446880 8.146090
8.023501 7.981967 7.955119 7.937092 7.922456 7.880596 7.861660 7.838057 7.807892 7.784401 7.756756
7.728613 7.724718 7.709527 7.705667"""


def numbers(text: str) -> np.ndarray:
    return np.array(text.split(), dtype=float)


@dataclass(frozen=True)
class Rows:
    """Labels of +1 and -1, and rows of the features that occur."""

    features: csr_array
    labels: np.ndarray

    @classmethod
    def read(cls, path: Path) -> Rows:
        lines = [line.split() for line in path.read_text().splitlines()]
        labels = np.where(np.array([float(line[0]) for line in lines]) > 0, 1.0, -1.0)
        cells = [cell.split(":") for line in lines for cell in line[1:]]
        columns = np.unique([int(name) for name, _ in cells], return_inverse=True)[1]
        starts = np.cumsum([0, *(len(line) - 1 for line in lines)])
        return cls(csr_array(([float(v) for _, v in cells], columns, starts)), labels)

    def logistic(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum of log(1 + exp(-label * row @ w))."""
        margins = self.labels * (self.features @ w)
        slopes = -self.labels / (1.0 + np.exp(margins))
        return float(np.logaddexp(0.0, -margins).sum()), self.features.T @ slopes

    def factorization_machine(self, x: Any) -> tuple[float, Any]:
        """The same of rows @ w + (|rows @ V|^2 - rows^2 @ |V|^2) / 2."""
        w, table = x["w"], x["V"]
        squares, sums = self.features**2, self.features @ table
        interactions = 0.5 * ((sums**2).sum(1) - (squares @ table**2).sum(1))
        margins = self.labels * (self.features @ w + interactions)
        slopes = -self.labels / (1.0 + np.exp(margins))
        gradient = (
            self.features.T @ (slopes[:, None] * sums) - (squares.T @ slopes)[:, None] * table
        )
        value = float(np.logaddexp(0.0, -margins).sum())
        return value, {"w": self.features.T @ slopes, "V": gradient}


@pytest.fixture(scope="module")
def rows() -> Rows:
    path = Path(os.environ.get("DIFACTO_DATA", "/nowhere"))
    if not path.is_file():
        pytest.skip("DIFACTO_DATA is not the file tests/data of github.com/dmlc/difacto")
    found = Rows.read(path)
    assert found.features.shape == (100, 2775)
    assert found.features.nnz == 9648
    return found


@dataclass(frozen=True)
class Halving:
    """DiFacto's search: step 1, then halves, until both of Wolfe's conditions hold; the fifth is
    taken whatever it is worth."""

    def __call__(self, ray: Ray) -> Trial:
        for halvings in range(5):
            trial = ray.at(0.5**halvings)
            low = trial.value <= ray.start.value + 1e-4 * trial.foretold
            if low and trial.slope >= 0.9 * ray.start.slope:
                break
        return trial


def test_ftrl(rows: Rows) -> None:
    """Their l2 belongs to the gradient, not to the closed form of the step."""
    solver = FTRL(step_size=1.0, beta=1.0, l1=1.0, max_iterations=19)
    states = solver.iterations(with_l2(rows.logistic, 1.0), np.zeros(2775))
    losses = [rows.logistic(state.x)[0] for state in states]
    np.testing.assert_allclose(losses, numbers(FTRL_LOSSES), rtol=0, atol=1e-6)


def test_the_optimum_with_l1(rows: Rows) -> None:
    """15.884923 is the loss there, without the penalty."""
    result = OWLQN(l1=0.1).minimize(rows.logistic, np.zeros(2775))
    assert rows.logistic(result.x)[0] == pytest.approx(15.884923, abs=1e-6)
    assert np.count_nonzero(result.x) == 47


def test_lbfgs_of_logistic_regression(rows: Rows) -> None:
    values = [state.value for state in _lbfgs(19).iterations(rows.logistic, np.zeros(2775))]
    np.testing.assert_allclose(values[1:], numbers(LINEAR_VALUES), rtol=0, atol=1e-6)


def test_lbfgs_of_a_factorization_machine(rows: Rows) -> None:
    start = {"w": np.zeros(2775), "V": np.tile((np.arange(1, 6) - 2.5) / 100, (2775, 1))}
    fun = with_l2(rows.factorization_machine, {"w": 0.1, "V": 0.01})
    values = [state.value for state in _lbfgs(23).iterations(fun, start)]
    assert len(values) == 24
    np.testing.assert_allclose(values[1:], numbers(MACHINE_VALUES), rtol=0, atol=1e-6)
    assert LBFGS().minimize(fun, start).fun < values[-1]


def _lbfgs(iterations: int) -> LBFGS:
    return LBFGS(history=5, search=Halving(), max_iterations=iterations)
