"""A web page that shows a session, its solvers and its servers while they work."""

from distvec.dashboard.dashboard import Dashboard, metrics

__all__ = ["Dashboard", "metrics"]
