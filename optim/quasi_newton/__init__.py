"""Solvers that estimate curvature from the changes of gradients."""
