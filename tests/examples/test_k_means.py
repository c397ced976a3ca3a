"""k-means: the same on NumPy's arrays and on servers, in one message for each iteration."""

import numpy as np

import distvec as dv
from examples.k_means import clusters, farthest_first, k_means, main


def test_the_same_as_on_numpy():
    truth = 3.0 * np.random.default_rng(0).standard_normal((4, 3))
    with dv.local(servers=3, in_process=True) as ps:
        points = clusters(ps, truth, 2000, seed=1)
        values = points.numpy()
        start = farthest_first(points, 4)
        np.testing.assert_array_equal(start, farthest_first(values, 4))
        ours, theirs = k_means(points, start), k_means(values, start)
        for iteration in range(6):
            before = ps.counters.messages
            step = next(ours)
            dv.evaluate(*step)
            assert iteration == 0 or ps.counters.messages == before + 1
            for mine, other in zip(step, next(theirs), strict=True):
                np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-12)


def test_a_center_without_points_stays():
    points = np.array([[0.0, 0.0], [1.0, 0.0]])
    step = next(k_means(points, np.array([[0.5, 0.0], [9.0, 9.0]])))
    np.testing.assert_array_equal(step.centers, [[0.5, 0.0], [9.0, 9.0]])
    np.testing.assert_array_equal(step.counts, [2, 0])


def test_what_it_prints(capsys):
    main(["--rows", "20000", "--clusters", "3", "--spread", "6"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a table of 20,000 x 8 on 2 servers"
    distances = [float(line.split()[-1]) for line in lines[1:-2]]
    assert distances == sorted(distances, reverse=True)
    assert lines[-2].startswith(f"{len(distances)} requests to each server")
    assert float(lines[-1].split(";")[0].split()[-1]) < 0.1
