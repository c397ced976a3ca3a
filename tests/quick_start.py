"""Where Java is, and how tests start it. Without pytest, as processes of Spark look here, too."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

CLASSES = Path(sys.prefix, "spark-classes.jsa")
"""What ``tests.spark.class_archive`` made, if it did: with it Spark starts in half the time."""

_JAVA_OPTIONS = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # With that level Java keeps 48 MB for compiled code. Some hundred jobs fill it, and then Java
    # only interprets.
    "-XX:ReservedCodeCacheSize=240m",
]
if CLASSES.exists():
    _JAVA_OPTIONS += ["-Xlog:disable", f"-XX:SharedArchiveFile={CLASSES}"]

QUICK_START = ("spark.driver.extraJavaOptions", " ".join(_JAVA_OPTIONS))
"""Compiling less, Java is up sooner; for tests that is worth more than the speed later. Nor do
threads look for garbage beside those of the jobs, of which there are as many as cores."""


def java() -> str | None:
    """Where Spark would find Java, if at all."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")
