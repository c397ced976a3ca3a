"""The examples of docs/reference/numpy.md on arrays elsewhere: on the client, split by columns,
selected by a mask. What has a result has NumPy's.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import distvec as dv
from docs.numpy_examples import examples
from docs.numpy_examples.operands import Put
from docs.numpy_examples.trial import run_all
from tests.distvec.test_numpy_page import unclear


def kept(session: dv.Session, array: np.ndarray) -> dv.DistArray:
    return session.zeros(1).like(session.graph.client_value(array.copy(), array.dtype))


def by_columns(session: dv.Session, array: np.ndarray) -> Any:
    if array.ndim < 2:
        return session.array(array)
    return session.space(len(array), split="columns").array(array)


def selected(session: dv.Session, array: np.ndarray) -> dv.DistArray:
    """Every other element of an array where all occur twice."""
    index = session.arange(2 * len(array))
    return session.array(np.repeat(array, 2, axis=0))[index % 2 == 0]


@pytest.mark.parametrize("put", [kept, by_columns, selected])
def test_nothing_differs_from_numpy(put: Put):
    texts = [text for given in examples().values() for text in given]
    if put is by_columns:
        texts = [text for text in texts if re.search(r"\b[TU]\b", text)]
    trials = run_all(texts, put).values()
    assert not [(one.text, one.wrong) for one in trials if one.wrong]
    assert not unclear(trials)
