"""A function of arrays, called on NumPy's and on those of servers: the same outcome?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np

import distvec as dv
from distvec.testing import assert_close, outcome, vectors

SHAPES = (
    (0,),
    (1,),
    (2,),
    (5,),
    (1025,),
    (3000,),
    (0, 2),
    (3, 0),
    (1, 1),
    (5, 3),
    (1030, 3),
    (2050, 1),
)
"""Nothing, the shortest, and what is cut into several blocks; vectors and tables."""


@st.composite
def arrays(draw: st.DrawFn, shapes: Any = SHAPES, dtype: str | None = None) -> Any:
    """An array of one of ``shapes``, of a dtype that has few values or of float64."""
    shape = draw(st.sampled_from(shapes))
    kind = dtype or draw(st.sampled_from(("float64", "int64", "float32", "bool", "uint8")))
    return draw(vectors(int(np.prod(shape)), kind)).reshape(shape)


def assert_alike(
    session: dv.Session, function: Callable[..., Any], *operands: Any, ulps: float = 0
) -> Any:
    """The results, one or several, are the same, or the same kind of refusal. Returns ours."""
    expected, refusal = outcome(function, *operands)
    ours, our_refusal = outcome(function, *(session.array(one) for one in operands))
    given = [(one.shape, one.dtype) for one in operands]
    assert (our_refusal is None) == (refusal is None), (given, our_refusal, refusal)
    if refusal is not None:
        assert our_refusal is not None
        assert issubclass(our_refusal, (refusal, NotImplementedError)), (given, our_refusal)
        return None
    several = isinstance(expected, list | tuple)
    pairs = zip(ours, expected, strict=True) if several else [(ours, expected)]
    for one, theirs in pairs:
        found = one.numpy() if hasattr(one, "numpy") else np.asarray(one)
        assert_close(found, np.asarray(theirs), ulps=ulps, what=f"of {given}")
    return ours
