"""The examples of estimators as a whole, on few rows."""

from multiprocessing.pool import ThreadPool

from pyspark.ml import tuning

from examples import own_loss, text_classification


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
