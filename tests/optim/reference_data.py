"""The reference data sets, read from ../shared/data beside the repository; skips without them."""

from __future__ import annotations

import bz2
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@cache
def read_json(name: str) -> Any:
    """A JSON file of the data folder."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return json.loads(path.read_text())


def optimum(name: str, kind: str, lam: float) -> dict[str, Any]:
    """The entry of reference.json."""
    entries = read_json("reference.json")[name]
    return next(e for e in entries if e["kind"] == kind and e["lam"] == lam)


@cache
def load(name: str) -> tuple[csr_array, np.ndarray]:
    """The train part of a binary problem: features as a sparse matrix, labels +1 and -1."""
    features, labels = load_classes(name)
    return features, signs(labels, read_json("datasets.json")[name])


@cache
def load_classes(name: str) -> tuple[csr_array, np.ndarray]:
    """The train part of a problem: features as a sparse matrix, labels as they are."""
    about = read_json("datasets.json")[name]
    text = bz2.decompress((DATA / name / about["files"]["train"]).read_bytes()).decode()
    lines = text.splitlines()
    counts = np.array([line.count(":") for line in lines])
    numbers = np.fromstring(text.replace(":", " "), sep=" ")
    starts = np.cumsum([0, *counts])
    firsts = 2 * starts[:-1] + np.arange(len(lines))
    entries = np.delete(numbers, firsts).reshape(-1, 2)
    labels, indices, values = numbers[firsts], entries[:, 0].astype(int) - 1, entries[:, 1].copy()
    shape = (len(lines), about["n_features"])
    return csr_array((values, indices, starts), shape=shape), labels


def signs(labels: np.ndarray, about: dict[str, Any]) -> np.ndarray:
    """+1 for the positive class: a label, or a rule such as 'label > 10'."""
    rule = about["positive_label"]
    if isinstance(rule, str):
        _, comparison, threshold = rule.split()
        positive = {">": np.greater, ">=": np.greater_equal}[comparison](labels, float(threshold))
    else:
        positive = labels == rule
    return np.where(positive, 1.0, -1.0)


class Logistic:
    """mean ln(1 + exp(-y <x, w>)) + l2 / 2 * |w|^2, counted."""

    def __init__(self, features: csr_array, labels: np.ndarray, l2: float = 0.0) -> None:
        self.signed = csr_array(features.multiply(labels[:, None]))
        self.transposed = csr_array(self.signed.T)
        self.l2 = l2
        self.evaluations = 0

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.evaluations += 1
        margins = self.signed @ w
        probability = 0.5 * (1.0 - np.tanh(0.5 * margins))
        value = np.logaddexp(0.0, -margins).mean() + 0.5 * self.l2 * (w @ w)
        return value, self.transposed @ (-probability / margins.size) + self.l2 * w
