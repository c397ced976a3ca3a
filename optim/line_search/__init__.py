"""Step-size searches: along a ray from x, find a step that gains enough.

A search sees only numbers, by a `Ray`; the vectors stay inside the trials.
"""

from optim.line_search.backtracking import Backtracking as Backtracking
from optim.line_search.backtracking import HighestOf as HighestOf
from optim.line_search.backtracking import MeanOf as MeanOf
from optim.line_search.backtracking import NonMonotone as NonMonotone
from optim.line_search.backtracking import Reference as Reference
from optim.line_search.hager_zhang import HagerZhang as HagerZhang
from optim.line_search.ray import Ray as Ray
from optim.line_search.ray import Sample as Sample
from optim.line_search.ray import Search as Search
from optim.line_search.ray import Trial as Trial
from optim.line_search.strong_wolfe import StrongWolfe as StrongWolfe
