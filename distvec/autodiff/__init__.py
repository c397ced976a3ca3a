"""Derivatives of functions written in NumPy's operations."""
