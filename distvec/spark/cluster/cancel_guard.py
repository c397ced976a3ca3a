"""Ctrl-C is not meant for the servers.

PySpark's handler of SIGINT calls ``cancelAllJobs``, and so would end the job whose tasks are the
servers, with all that they hold.
"""

from __future__ import annotations

from pyspark import SparkContext


class CancelGuard:
    """While it is up, ``cancelAllJobs`` of a SparkContext spares the jobs of one group.

    A job that began some milliseconds ago may be spared, too, as Spark does not list it yet.
    """

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context, self._group = context, group
        self._cancel = self.cancel_others

    def up(self) -> None:
        """Take the place of the SparkContext's method, for this one object."""
        vars(self._context)["cancelAllJobs"] = self._cancel

    def down(self) -> None:
        """Give it back. Idempotent."""
        if vars(self._context).get("cancelAllJobs") is self._cancel:
            del vars(self._context)["cancelAllJobs"]

    def cancel_others(self) -> None:
        """Cancel all jobs that run or wait, but those of the group."""
        tracker = self._context.statusTracker()
        spared = set(tracker.getJobIdsForGroup(self._group))
        for job in tracker.getActiveJobsIds():
            if job not in spared:
                self._context._jsc.sc().cancelJob(job)
