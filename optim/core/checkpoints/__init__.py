"""Checkpoints of a run, from which another process resumes with bitwise identical steps."""
