"""For pytest: puts our classes in the place of scikit-learn's before a test imports them."""

from __future__ import annotations

import sklearn.cluster
import sklearn.decomposition
import sklearn.linear_model
import sklearn.svm

import distvec.sklearn

PACKAGES = (sklearn.linear_model, sklearn.svm, sklearn.cluster, sklearn.decomposition)

for _package in PACKAGES:
    for _name in distvec.sklearn.__all__:
        if hasattr(_package, _name):
            setattr(_package, _name, getattr(distvec.sklearn, _name))
