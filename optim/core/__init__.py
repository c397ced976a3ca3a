"""The parts that all solvers share."""
