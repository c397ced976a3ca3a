"""Step-size searches: along a ray from x, find a step that gains enough.

A search sees numbers only, through `Ray`; the vectors stay where they are, inside the trials.
"""

from ._ray import Ray as Ray
from ._ray import Sample as Sample
from ._ray import Search as Search
from ._ray import Trial as Trial
from .backtracking import Backtracking as Backtracking
from .hager_zhang import HagerZhang as HagerZhang
from .non_monotone import HighestOf as HighestOf
from .non_monotone import MeanOf as MeanOf
from .non_monotone import NonMonotone as NonMonotone
from .non_monotone import Reference as Reference
from .strong_wolfe import StrongWolfe as StrongWolfe
