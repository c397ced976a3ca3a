"""word2vec: rows that travel and sums that travel learn the same vectors, and find the clusters."""

import numpy as np

import distvec as dv
from examples.word2vec import (
    RowsTravel,
    SumsTravel,
    advice,
    batches,
    corpus,
    learn,
    main,
    parse,
    skip_grams,
)

SMALL = ["--clusters", "3", "--words", "10", "--sentences", "250", "--columns", "16"]
SMALL += ["--batch", "128", "--epochs", "3", "--seed", "1"]


def test_both_ways_learn_the_same_and_find_the_clusters():
    options = parse(SMALL)
    pairs = skip_grams(corpus(3, 10, 250, 12, seed=1), 2)
    with dv.local(servers=2, in_process=True) as ps:
        rows = RowsTravel(ps, 30, 16, seed=1)
        sums = SumsTravel(ps, rows)
        by_rows, by_sums = (learn(ps, way, pairs, 30, options) for way in (rows, sums))
        np.testing.assert_allclose(sums.of_words(), rows.of_words(), atol=1e-3)
    assert by_rows.purity == by_sums.purity > 0.95
    np.testing.assert_allclose(by_rows.losses, by_sums.losses, rtol=1e-4)
    assert by_rows.losses == sorted(by_rows.losses, reverse=True)
    assert by_rows.messages == 2.0
    assert by_sums.messages < 1.1  # the last step waits until somebody asks for the vectors


def test_what_is_drawn_depends_on_seed_and_epoch():
    options = parse(SMALL)
    pairs = skip_grams(corpus(3, 10, 20, 12, seed=1), 2)
    first, again, later = (
        [np.concatenate(batch) for batch in batches(pairs, 30, epoch, options)]
        for epoch in (0, 0, 1)
    )
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (first[0] != later[0]).any()


def test_what_it_prints(capsys):
    main([*SMALL, "--epochs", "1", "--sentences", "40"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "30 words in 3 clusters, 1,680 pairs per epoch"
    assert lines[-3].startswith("rows travel: 2.00 requests to a server")
    assert lines[-2].startswith("sums travel: ")
    assert lines[-1] == advice(128, 5, 16, 60, 2)
    assert "sums send less above" in lines[-1]
