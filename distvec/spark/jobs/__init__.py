"""Spark jobs and applications."""
