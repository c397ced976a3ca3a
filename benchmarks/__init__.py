"""Measurements, each beside a peer in the same run: ``python -m benchmarks.NAME [--quick]``."""
