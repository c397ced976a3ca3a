"""SciPy's special functions by name; ``scipy.special`` is imported when the first one computes.

Importing it took a third of the time in which a server starts, and few programs use it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OfSciPy:
    """A ufunc of ``scipy.special``, by the name that it has there."""

    name: str
    nin: int = 1

    @property
    def ufunc(self) -> Any:
        """The ufunc itself: those of ``scipy.special`` are wrapped where SCIPY_ARRAY_API is set."""
        from scipy.special import _ufuncs

        return getattr(_ufuncs, self.name)

    def stands_for(self, ufunc: Any) -> bool:
        """Whether ``ufunc`` is it; imports nothing, since who has one has imported it."""
        module = sys.modules.get("scipy.special._ufuncs")
        return getattr(module, self.name, None) is ufunc

    def __call__(self, *operands: Any) -> Any:
        """Compute it."""
        return self.ufunc(*operands)


expit, logit, log_expit = OfSciPy("expit"), OfSciPy("logit"), OfSciPy("log_expit")
erf, erfc, erfcx = OfSciPy("erf"), OfSciPy("erfc"), OfSciPy("erfcx")
ndtr, log_ndtr = OfSciPy("ndtr"), OfSciPy("log_ndtr")
gammaln, psi, i0, i1 = OfSciPy("gammaln"), OfSciPy("psi"), OfSciPy("i0"), OfSciPy("i1")
entr, rel_entr, kl_div = OfSciPy("entr"), OfSciPy("rel_entr", 2), OfSciPy("kl_div", 2)
xlogy, xlog1py = OfSciPy("xlogy", 2), OfSciPy("xlog1py", 2)
huber, pseudo_huber = OfSciPy("huber", 2), OfSciPy("pseudo_huber", 2)
