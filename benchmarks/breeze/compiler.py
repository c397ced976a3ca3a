"""The class path of Peer.scala, compiled once by the Scala compiler among PySpark's jars."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).with_name("Peer.scala")
_BUILD = Path(__file__).resolve().parents[2] / "build" / "breeze"
_NEEDED = ("breeze_2", "scala-compiler", "scala-library")


class BreezeMissing(RuntimeError):
    """Java, or PySpark with Breeze in it, is not on this machine."""


def find_java() -> str:
    """The ``java`` of ``JAVA_HOME``, or else the one on the path. Raises ``BreezeMissing``."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the path"
        raise BreezeMissing(f"no java {where}: install a JDK, or set JAVA_HOME to one")
    return java


def class_path(java: str) -> str:
    """Peer.scala's classes and PySpark's jars. The first call takes seconds: it compiles.

    The classes are kept in build/breeze/, under a digest of what they were made from. Raises
    ``BreezeMissing``, or ``RuntimeError`` with what the compiler says.
    """
    jars = _jars()
    named = sorted(jar.name for jar in jars.iterdir() if jar.name.startswith(_NEEDED))
    digest = hashlib.sha256("\n".join([_SOURCE.read_text(), *named]).encode())
    classes = _BUILD / digest.hexdigest()[:16]
    if not classes.exists():
        _compile(java, jars, classes)
    return os.pathsep.join([str(classes), str(jars / "*")])


def _jars() -> Path:
    """PySpark's folder of jars."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise BreezeMissing("PySpark, whose jars have Breeze, is not installed: make env")
    jars = Path(pyspark.origin).with_name("jars")
    for name in _NEEDED:
        if not any(jars.glob(f"{name}*.jar")):
            raise BreezeMissing(f"{jars} has no {name}*.jar: is this PySpark complete?")
    return jars


def _compile(java: str, jars: Path, classes: Path) -> None:
    classes.parent.mkdir(parents=True, exist_ok=True)
    # Compiled aside, then renamed: nobody ever finds half of the classes.
    with tempfile.TemporaryDirectory(dir=classes.parent) as aside:
        made = Path(aside, "classes")
        made.mkdir()
        command = [java, "-cp", str(jars / "*"), "scala.tools.nsc.Main", "-usejavacp"]
        command += ["-d", str(made), str(_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{_SOURCE} does not compile:\n{done.stdout}{done.stderr}")
        if not classes.exists():  # unless another process was faster
            made.rename(classes)
