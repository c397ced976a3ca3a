"""Topics of documents, with the topics on the servers: variational Bayes over batches of rows, or
sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from distvec import DistArray
from distvec.losses.loss import Loss
from distvec.losses.rows import Floats
from distvec.losses.topic_sampling import TopicSampling
from distvec.losses.topics import Topics, better_concentrations
from distvec.spark.context import PSContext
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import PartitionedRows
from distvec.spark.objectives.block_rounds import restart_if_lost
from distvec.spark.objectives.evaluation_task import LoadedPartitions, LossSpec
from distvec.spark.objectives.evaluator import Evaluator, standing_tasks
from distvec.spark.objectives.fit_file import FitFile
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
    initial: tuple[float, ...] = ()
    """The sums of the topics that the fit starts from, if they are those of a model."""

    def file(self, directory: str, interval: int, **about: Any) -> FitFile:
        """Where the fit keeps its state; ``about`` tells it from fits to other rows."""
        known = asdict(self) | {"prior": self.prior.tolist()} | about
        del known["iterations"]  # which may be more in a fit that goes on
        return FitFile(directory, interval, known)


class FittedTopics(NamedTuple):
    """Parameters of the topics' distributions over words, and concentrations of topics."""

    words: DistArray
    prior: Floats


def fit_topics(
    ps: PSContext,
    data: PartitionedRows,
    problem: TopicsProblem,
    start: Callable[[], DistArray],
    kept: tuple[str, int] | None = None,
    *,
    progress: bool,
) -> FittedTopics:
    """Take the steps of variational Bayes from the topics that ``start`` makes.

    ``kept``: the directory where the state is kept, and the steps between. ``ValueError`` for
    negative counts, and if no document has words. If a server is lost, the steps since the last
    state that was kept are taken again, with a warning. Costs a Spark job; a step one request, in
    which tasks pull the rows of their words, and push as many.
    """
    corpus = data.retry_missing(partial(_corpus, data))
    loss = Topics(problem.prior.size, corpus.tokens, corpus.documents)
    digest = sum(one.digest for one in corpus.parts) % 2**64  # of any partitions
    file = kept and problem.file(*kept, method="online", digest=digest)
    fit = partial(_fit, problem=problem, documents=corpus.documents, start=start)
    return _in_standing_tasks(ps, data, loss, partial(fit, file=file, progress=progress))


def sample_topics(
    ps: PSContext,
    data: PartitionedRows,
    problem: TopicsProblem,
    kept: tuple[str, int] | None = None,
    *,
    progress: bool,
) -> FittedTopics:
    """The topics of the last of ``problem.iterations`` sweeps of sampling, from random ones.

    The concentrations stay as they are. ``ValueError`` also for counts that are no whole numbers.
    Costs a Spark job; a sweep one request, in which tasks pull the rows of their words and the
    topics of their tokens, and push as many. The rest is as of ``fit_topics``.
    """
    corpus = data.retry_missing(partial(_corpus, data, are_whole=True))
    count = problem.prior.size
    firsts = [data.size] * (corpus.parts[-1].number + 1)
    length = data.size
    for one in corpus.parts:
        firsts[one.number] = length
        length += -(-int(one.tokens) // count)
    loss = TopicSampling(
        data.size, tuple(firsts), tuple(problem.prior.tolist()), problem.concentration, problem.seed
    )
    digests = [(one.number, one.digest) for one in corpus.parts]
    file = kept and problem.file(*kept, method="sampling", digests=digests)
    fit = partial(_sample, problem=problem, shape=(length, count), words=data.size, file=file)
    return _in_standing_tasks(ps, data, loss, partial(fit, progress=progress))


def _in_standing_tasks(
    ps: PSContext, data: PartitionedRows, loss: Loss, fit: Callable[[Evaluator], FittedTopics]
) -> FittedTopics:
    work = LossSpec(loss, intercept=False)
    standing = standing_tasks(ps, data, work)
    evaluator = Evaluator(ps, data, work, standing)
    try:
        return restart_if_lost(ps, partial(fit, evaluator), "the search for topics")
    finally:
        standing.close()


def _fit(
    evaluator: Evaluator,
    *,
    problem: TopicsProblem,
    documents: int,
    start: Callable[[], DistArray],
    file: FitFile | None,
    progress: bool,
) -> FittedTopics:
    if resumed := file and file.resume(evaluator.ps):
        begin, words, prior = resumed[0], resumed[2]["words"], np.array(resumed[1])
    else:
        begin, words, prior = 0, start(), problem.prior
    with progress_bar(problem.iterations, is_shown=progress) as show:
        for number in range(begin, problem.iterations):
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
            if file:
                file.keep(number + 1, prior.tolist(), words=words)
            show(number + 1, bound=-found.value / max(found.weight, 1.0))
    words = words.persist()
    if file:
        file.delete()
    return FittedTopics(words, prior)


def _sample(
    evaluator: Evaluator,
    *,
    problem: TopicsProblem,
    shape: tuple[int, int],
    words: int,
    file: FitFile | None,
    progress: bool,
) -> FittedTopics:
    """``shape`` is that of the state of ``TopicSampling``."""
    ps = evaluator.ps
    if resumed := file and file.resume(ps):
        begin, state = resumed[0] + 1, resumed[2]["state"]
    else:
        begin, state = 0, ps.zeros(shape, np.int32)
    with progress_bar(problem.iterations, is_shown=progress) as show:
        for sweep in range(begin, problem.iterations + 1):
            of_sweep = evaluator.with_options({"sweep": sweep})
            state = state + of_sweep.advance((state, state[:words].sum(axis=0)), state.type)
            if file and sweep:
                file.keep(sweep, state=state)
            show(sweep)
    topics = (state[:words] + problem.concentration).persist()
    if file:
        file.delete()
    return FittedTopics(topics, problem.prior)


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
    parts: list[_Part]
    """In the order of their numbers."""


class _Part(NamedTuple):
    """The same of a partition, and its first bad element: row, word and count."""

    number: int
    digest: int
    documents: int
    tokens: float
    bad: tuple[int, int, float] | None


def _corpus(data: PartitionedRows, *, are_whole: bool = False) -> _Corpus:
    """Raises BlockMissing."""
    parts = data.run_on_blocks(partial(_describe, are_whole=are_whole))
    for one in parts:
        if one.bad is not None:
            row, word, count = one.bad
            raise ValueError(
                f"document {row} of partition {one.number} has the word {word} {count:.17g} times; "
                f"counts must be 0 or more{', and whole numbers' * are_whole}"
            )
    documents = sum(one.documents for one in parts)
    if not documents:
        raise ValueError("no document has words; topics need at least one")
    tokens = float(np.ceil(sum(one.tokens for one in parts)))
    return _Corpus(documents, tokens, sorted(parts))


def _describe(descriptor: Descriptor, *, are_whole: bool) -> _Part:
    selection = singleton(LoadedPartitions).get(descriptor.path).selection(None, 0)
    rows = selection.rows
    sums = np.asarray(rows.matrix.sum(axis=1), np.float64).ravel()
    matrix = sp.coo_array(rows.matrix)
    is_bad = matrix.data < 0.0
    if are_whole:
        is_bad |= matrix.data != np.floor(matrix.data)
    places = np.flatnonzero(is_bad)
    bad = None
    if places.size:
        row, column = (int(one[places[0]]) for one in matrix.coords)
        word = int(selection.features[column])
        bad = int(rows.labels[row]), word, float(matrix.data[places[0]])
    documents, tokens = int(np.count_nonzero(sums)), float(sums.sum())
    return _Part(descriptor.partition, descriptor.digest, documents, tokens, bad)
