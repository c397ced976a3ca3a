"""Fits in one barrier job, as through Spark Connect: its tasks run servers, rows and the solver."""
