"""The README's Python snippets run as they are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def run(snippet, folder):
    # In a script, as server processes and Spark's workers may import the main module.
    script = folder / "snippet.py"
    script.write_text(snippet)
    return subprocess.run(
        [sys.executable, script], cwd=ROOT, capture_output=True, text=True, timeout=240
    )


def test_vectors(tmp_path):
    done = run(SNIPPETS[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1055555.83333")


@pytest.mark.spark
def test_spark(tmp_path):
    done = run(SNIPPETS[1], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Converged") == 2
