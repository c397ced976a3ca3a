"""The examples of estimators as a whole, on few rows."""

import re
from multiprocessing.pool import ThreadPool

from pyspark.ml import tuning

from examples import (
    claim_counts,
    import_graph,
    own_loss,
    survival,
    text_classification,
    topics,
)


def test_a_loss_of_ones_own_in_a_pipeline(one_spark, capsys, monkeypatch):
    pools = []  # pyspark never ends the threads that it makes
    monkeypatch.setattr(
        tuning, "ThreadPool", lambda processes: pools.append(ThreadPool(processes)) or pools[-1]
    )
    own_loss.main(["--rows", "300"])
    for pool in pools:
        pool.terminate()
    squares, cauchy = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert cauchy < 0.3 < squares


def test_lines_of_packages(one_spark, capsys):
    text_classification.main("--packages pyspark scipy --files 2 --iterations 4".split())
    _, first, second = capsys.readouterr().out.splitlines()
    assert "regParam 0.0001: accuracy 0." in second
    assert 0.5 < float(first.split("accuracy ")[1].split(",")[0]) < 1.0


def numbers(line):
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", line)]


def test_counts_of_claims(one_spark, capsys):
    claim_counts.main(["--rows", "4000"])
    *effects, deviance, other = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in effects] == [*claim_counts.EFFECTS, "base"]
    for line in effects:
        factor, _, low, high, true = numbers(line)
        assert low < factor < high and abs(factor - true) < 2.0 * (high - low)
    explained, null = numbers(deviance)
    assert explained < numbers(other)[0] and explained < null


def test_survival_times(one_spark, capsys):
    survival.main(["--rows", "1500"])
    _, *parameters, low, median, high = capsys.readouterr().out.splitlines()
    assert len(parameters) == len(survival.EFFECTS) + 2
    for line in parameters:
        found, true = numbers(line)
        assert abs(found - true) < 0.2
    for line in (low, median, high):
        probability, percent = numbers(line)
        assert abs(100.0 * probability - percent) < 4.0


def test_imports_of_a_package(one_spark, capsys):
    import_graph.main(["--package", "optim", "--count", "3"])
    connected, *modules = capsys.readouterr().out.splitlines()
    assert numbers(connected)[0] > 20
    shares = [numbers(line)[0] for line in modules]
    assert len(shares) == 3 and shares == sorted(shares, reverse=True)
    assert all(" optim." in line for line in modules)


def test_topics_of_docstrings(one_spark, capsys):
    topics.main("--packages scipy --files 60 --topics 3 --steps 5".split())
    first, *lines, last = capsys.readouterr().out.splitlines()
    documents, words = numbers(first.replace(",", ""))
    assert documents > 20 and len(lines) == 3 and all(len(line.split()) == 7 for line in lines)
    assert 1.0 < numbers(last.replace(",", ""))[0] < words
