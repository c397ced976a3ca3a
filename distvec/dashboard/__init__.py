"""A web page that shows a session, its solvers and its servers while they work."""

from distvec.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
