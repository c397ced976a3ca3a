"""Solvers for sums of a smooth and a simple function."""
