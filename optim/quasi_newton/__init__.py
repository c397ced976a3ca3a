"""Solvers that learn curvature from gradients."""
