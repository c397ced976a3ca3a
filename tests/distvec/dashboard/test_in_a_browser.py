"""The page as a real browser shows it, live and as a file; skipped without a headless Chromium."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

import distvec as dv
import optim
from tests.waiting import PATIENCE

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
HOSTILE = '<img src=x onerror="alert(1)">'

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no headless Chromium is installed")


@pytest.fixture(scope="module")
def session():
    with dv.local(2, in_process=True) as ps:
        page = ps.dashboard()
        target = ps.array(np.linspace(0.0, 1.0, 1000))
        scale = ps.array(np.linspace(1.0, 100.0, 1000))
        optim.LBFGS().minimize(
            lambda x: (float(scale @ (x - target) ** 2), 2 * scale * (x - target)), ps.zeros(1000)
        )
        ps.keys().zeros().push([1, 2], [1.0, 1.0])
        logging.getLogger("distvec.tests").warning("%s", HOSTILE)
        yield ps, page


def shown(url, folder, width=1280):
    """The document once its scripts have run for some seconds, and what the console says."""
    command = [BROWSER, "--headless", "--disable-gpu", f"--window-size={width},2000"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    command += [
        f"--user-data-dir={folder}",
        "--enable-logging=stderr",
        "--virtual-time-budget=4000",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", url], capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def check(text, console):
    assert console == []
    assert re.search(r'<h3>objective minus the best value</h3><svg[^>]*>.*?class="line s0"', text)
    assert text.count("<svg") >= 7 and "no data yet" not in text.partition('id="time"')[0]
    assert "<img" not in text.partition("<main")[2].partition("<script")[0]
    assert "&lt;img src=x" in text
    for words in ("LBFGS", "Converged", "make_keys", "1000", "Keys of keyed spaces"):
        assert words in text


@pytest.mark.parametrize("width", [1280, 400])
def test_the_file(session, tmp_path, width):
    ps, _ = session
    ps.report(tmp_path / "run.html")
    text, console = shown((tmp_path / "run.html").as_uri(), tmp_path / "browser", width)
    check(text, console)
    assert ">saved " in text


def test_the_live_page(session, tmp_path):
    _, page = session
    text, console = shown(page.url, tmp_path / "browser")
    check(text, console)
    assert ">live<" in text and page.token not in text
