"""Topics of documents: variational Bayes over batches of rows, with the topics on the servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from distvec import DistArray
from distvec.losses.rows import Floats
from distvec.losses.topics import Topics, better_concentrations
from distvec.spark.context import PSContext
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import PartitionedRows
from distvec.spark.objectives.block_rounds import restart_if_lost
from distvec.spark.objectives.evaluation_task import LoadedPartitions, LossSpec
from distvec.spark.objectives.evaluator import Evaluator, standing_tasks
from distvec.spark.objectives.partition import Span
from distvec.spark.task_session import singleton
from optim.core.run import progress_bar


@dataclass(frozen=True)
class TopicsProblem:
    """The priors, and the steps: step ``t`` from 1 has the weight ``(offset + t)^-decay``."""

    concentration: float
    """Of words in topics."""
    prior: Floats
    """Concentrations of topics in documents, at first."""
    is_prior_fixed: bool
    iterations: int
    fraction: float
    """Of the documents, in a step."""
    offset: float
    decay: float
    seed: int


class FittedTopics(NamedTuple):
    """Parameters of the topics' distributions over words, and concentrations of topics."""

    words: DistArray
    prior: Floats


def fit_topics(
    ps: PSContext,
    data: PartitionedRows,
    problem: TopicsProblem,
    start: Callable[[], DistArray],
    *,
    progress: bool,
) -> FittedTopics:
    """Take the steps from the topics that ``start`` makes.

    ``ValueError`` for negative counts, and if no document has words. If a server is lost, all steps
    are taken again, with a warning. Costs a Spark job; a step one request, in which tasks pull the
    rows of their words, and push as many.
    """
    corpus = data.retry_missing(partial(_corpus, data))
    loss = Topics(problem.prior.size, corpus.tokens, corpus.documents)
    work = LossSpec(loss, intercept=False)
    standing = standing_tasks(ps, data, work)
    evaluator = Evaluator(ps, data, work, standing)
    fit = partial(_fit, evaluator, problem, corpus.documents, start, progress)
    try:
        return restart_if_lost(ps, fit, "the search for topics")
    finally:
        standing.close()


def _fit(
    evaluator: Evaluator,
    problem: TopicsProblem,
    documents: int,
    start: Callable[[], DistArray],
    progress: bool,
) -> FittedTopics:
    words, prior = start(), problem.prior
    with progress_bar(problem.iterations, is_shown=progress) as show:
        for number in range(problem.iterations):
            priors = evaluator.ps.array(np.vstack([words.sum(axis=0).numpy(), prior]))
            found = evaluator.sums((words, priors), None, _batch(problem, number))
            if found.weight > 0.0:
                weight = (problem.offset + number + 1) ** -problem.decay
                tokens, logs = found.gradients
                target = problem.concentration + documents / found.weight * tokens
                words = (1.0 - weight) * words + weight * target
                if not problem.is_prior_fixed:
                    mean = logs.numpy()[1] / found.weight
                    prior = better_concentrations(prior, mean, found.weight, weight)
            show(number + 1, bound=-found.value / max(found.weight, 1.0))
    return FittedTopics(words.persist(), prior)


def _batch(problem: TopicsProblem, number: int) -> Span | None:
    if problem.fraction >= 1.0:
        return None
    begin, end = (problem.fraction * one for one in (number, number + 1))
    return Span(begin, end, problem.seed)


class _Corpus(NamedTuple):
    """Of all rows."""

    documents: int
    """Those that have words."""
    tokens: float


class _Part(NamedTuple):
    """The same of a partition, and its first bad element: row, word and count."""

    documents: int
    tokens: float
    bad: tuple[int, int, float] | None


def _corpus(data: PartitionedRows) -> _Corpus:
    """Raises BlockMissing."""
    parts = data.run_on_blocks(_describe)
    for number, one in enumerate(parts):
        if one.bad is not None:
            row, word, count = one.bad
            raise ValueError(
                f"document {row} of partition {number} has the word {word} {count:g} times; counts "
                "must be 0 or more"
            )
    documents = sum(one.documents for one in parts)
    if not documents:
        raise ValueError("no document has words; topics need at least one")
    return _Corpus(documents, float(np.ceil(sum(one.tokens for one in parts))))


def _describe(descriptor: Descriptor) -> _Part:
    selection = singleton(LoadedPartitions).get(descriptor.path).selection(None, 0)
    rows = selection.rows
    sums = np.asarray(rows.matrix.sum(axis=1), np.float64).ravel()
    matrix = sp.coo_array(rows.matrix)
    places = np.flatnonzero(matrix.data < 0.0)
    bad = None
    if places.size:
        row, column = (int(one[places[0]]) for one in matrix.coords)
        word = int(selection.features[column])
        bad = int(rows.labels[row]), word, float(matrix.data[places[0]])
    return _Part(int(np.count_nonzero(sums)), float(sums.sum()), bad)
