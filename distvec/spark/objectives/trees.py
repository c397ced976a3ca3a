"""Boosted trees over the rows of a data set: bins of a sample, then a question for each level."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from distvec.losses.boosting import Boosting, RowSample, sample_rows
from distvec.losses.trees import Nodes
from distvec.objectives.tree_bins import bins_for, gather_sample
from distvec.objectives.tree_growth import Ensemble, boost
from distvec.objectives.tree_splits import Counts, Growth
from distvec.spark.context import PSContext
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import PartitionedRows
from distvec.spark.objectives.evaluation_task import LoadedPartitions, LossSpec
from distvec.spark.objectives.evaluator import Evaluator, standing_tasks
from distvec.spark.task_session import singleton
from optim.core.run import progress_bar


def fit_trees(
    ps: PSContext,
    data: PartitionedRows,
    growth: Growth,
    *,
    max_bins: int,
    categorical: Sequence[int],
    progress: bool,
) -> Ensemble:
    """Grow trees. Costs a Spark job, and one request per server for each level of each tree.

    The question goes to the servers, from which tasks copy it; the histograms of all tasks are
    added there.
    """

    def draw(share: float) -> list[RowSample]:
        task = partial(_draw, share, tuple(categorical))
        return data.retry_missing(partial(data.run_on_blocks, task))

    sample = gather_sample(draw, data.rows, max_bins)
    bins = bins_for(sample, data.size, max_bins, categorical)
    work = LossSpec(Boosting(growth.kind, growth.outputs), intercept=True)
    standing = standing_tasks(ps, data, work)
    evaluator = Evaluator(ps, data, work, standing)
    table = ps.array(bins)
    known = np.zeros((0, 0)), ps.array(np.zeros((1, 1)))

    def ask(trees: Nodes, question: Nodes, rows: int) -> Counts:
        nonlocal known
        if trees is not known[0]:  # they change once in a round
            known = trees, ps.array(trees) if len(trees) else known[1]
        like = ps.zeros((rows, 3), dtype=np.int64).type
        return evaluator.advance((table, known[1], ps.array(question)), like).numpy()

    try:
        with progress_bar(growth.rounds, is_shown=progress) as show:
            return boost(growth, sample, bins, ask, show)
    finally:
        standing.close()


def _draw(share: float, categorical: Sequence[int], descriptor: Descriptor) -> RowSample:
    loaded = singleton(LoadedPartitions).get(descriptor.path)
    selection = loaded.selection(None, descriptor.partition)
    return sample_rows(selection.rows, selection.features, share, categorical)
