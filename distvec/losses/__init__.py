"""What an objective sums over rows: losses as small values, on NumPy and SciPy arrays of one
process. Which rows there are, and where the parameters live, is the business of the objectives."""
