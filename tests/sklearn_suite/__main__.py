"""Run the tests in the package of scikit-learn with our classes, and print the counts.

python -m tests.sklearn_suite                       # all files
python -m tests.sklearn_suite test_huber test_glm   # some files
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import sklearn

from tests.suites.runner import ROOT, Part, Suite, run_all

_FILES = (
    *(f"linear_model/tests/test_{name}.py" for name in ("base", "common", "coordinate_descent")),
    *(f"linear_model/tests/test_{name}.py" for name in ("huber", "logistic", "quantile", "ridge")),
    *(f"linear_model/tests/test_{name}.py" for name in ("sgd", "sparse_coordinate_descent")),
    "linear_model/_glm/tests/test_glm.py",
    "svm/tests/test_svm.py",
    "svm/tests/test_sparse.py",
    "cluster/tests/test_k_means.py",
    "decomposition/tests/test_online_lda.py",
)


def main() -> int:
    """Print one row for each file; the exit code tells whether all tests did as expected."""
    parser = argparse.ArgumentParser(description="Run scikit-learn's tests with our classes.")
    parser.add_argument("files", nargs="*", help="names of files; all by default")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/sklearn_suite")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    suite = Suite(
        "sklearn",
        Path(sklearn.__file__).parent,
        Path(__file__).with_name("expected_failures.txt"),
        ("tests.sklearn_suite.plugin",),
        {"SKLEARN_RUN_FLOAT32_TESTS": "1"},
    )
    parts = [Part(Path(one).stem, (one,)) for one in _FILES]
    return run_all(parts, given.files, suite, folder)


if __name__ == "__main__":
    sys.exit(main())
