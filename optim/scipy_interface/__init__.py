"""SciPy's way to call a solver."""
