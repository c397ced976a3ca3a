"""Breeze's L-BFGS, the one under Spark's MLlib, in a JVM beside this process.

PySpark ships Breeze and a Scala compiler, so all it takes is Java. A minimisation runs on an
objective in the JVM (``Breeze.quadratic``, for large vectors) or on one in this process
(``Breeze.minimize``, for any function of moderate size).
"""

from benchmarks.breeze.compiler import BreezeMissing as BreezeMissing
from benchmarks.breeze.connection import Breeze as Breeze
from benchmarks.breeze.connection import Minimisation as Minimisation
