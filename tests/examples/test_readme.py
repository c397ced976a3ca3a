"""The README's Python snippets run as they are."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def run(tmp_path, snippet):
    # In a script, as server processes may import the main module.
    script = tmp_path / "snippet.py"
    script.write_text(snippet)
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_vectors(tmp_path):
    assert run(tmp_path, SNIPPETS[0]).startswith("1055555.83333")


def test_keys(tmp_path):
    keys, squares = run(tmp_path, SNIPPETS[1]).split()
    assert keys == "2" and 0 < float(squares) < 32 * 0.1**2


def test_spark(one_spark, capsys):
    exec(compile(SNIPPETS[2], "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out.count("Converged") == 2


def test_round(one_spark):
    from distvec.spark import PSContext

    with PSContext.get_or_create(one_spark, servers=2) as ps:
        names = {"ps": ps, "rdd": one_spark.sparkContext.parallelize(range(4), 2)}
        exec(compile(SNIPPETS[3], "README.md", "exec"), names)
        assert names["gradient"].pull([3, 4, 5]).tolist() == [4.0, 0.0, 8.0]


def test_loop(one_spark, capsys):
    from distvec.spark import PSContext

    with PSContext.get_or_create(one_spark, servers=2) as ps:
        names = {"ps": ps, "rdd": one_spark.sparkContext.parallelize(range(4), 2)}
        exec(compile(SNIPPETS[4], "README.md", "exec"), names | {"__name__": "readme"})
    assert capsys.readouterr().out == "[0, 1]\n"
