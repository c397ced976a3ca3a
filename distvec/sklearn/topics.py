"""Topics of documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn.decomposition
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.utils import gen_even_slices

from distvec.losses.topic_loops import add_statistics, infer_topics
from distvec.losses.topics import unit_of
from distvec.sklearn.base import Array


class LatentDirichletAllocation(sklearn.decomposition.LatentDirichletAllocation):
    """Latent Dirichlet allocation by variational Bayes, in compiled loops.

    Parameters
    ----------
    n_components, doc_topic_prior, topic_word_prior, learning_method, learning_decay, \
learning_offset, max_iter, batch_size, evaluate_every, total_samples, perp_tol, mean_change_tol, \
max_doc_update_iter, n_jobs, verbose, random_state : Any
        As in scikit-learn's class. ``n_jobs`` is a number of threads. Inference begins with equal
        topics of each document, also in a fit, so ``random_state`` draws the first topics alone.

    Examples
    --------
    >>> from distvec.sklearn import LatentDirichletAllocation
    >>> X = [[4, 3, 0, 0], [0, 0, 5, 2], [2, 5, 0, 0]]
    >>> model = LatentDirichletAllocation(n_components=2, random_state=0).fit(X)
    >>> model.transform(X).argmax(axis=1).tolist() in ([0, 1, 0], [1, 0, 1])
    True
    """

    def _e_step(
        self, X: Any, cal_sstats: bool, random_init: bool, parallel: Any = None
    ) -> tuple[Array, Array | None]:
        """Topics of documents, and what they say of the words."""
        matrix = sp.csr_array(X)
        rates = np.ascontiguousarray(self.exp_dirichlet_component_.T, np.float64)
        prior = np.full(self.n_components, float(self.doc_topic_prior_))
        gammas = np.empty((matrix.shape[0], self.n_components))
        unit = unit_of(max(float(matrix.sum()), 1.0))

        def infer(part: slice) -> Array | None:
            some = matrix[part]
            elements = some.data.astype(np.float64), some.indices, some.indptr
            limits = self.mean_change_tol, self.max_doc_update_iter
            infer_topics(*elements, rates, prior, *limits, gammas[part])
            if not cal_sstats:
                return None
            sums = np.zeros_like(rates)
            add_statistics(*elements, rates, gammas[part], unit, sums)
            return sums

        threads = effective_n_jobs(self.n_jobs)
        run = Parallel(threads, prefer="threads", verbose=max(0, self.verbose - 1))
        sums = run(delayed(infer)(part) for part in gen_even_slices(len(gammas), threads))
        dtype = self.components_.dtype
        total = sum(sums).T.astype(dtype) if cal_sstats else None
        return gammas.astype(dtype, copy=False), total
