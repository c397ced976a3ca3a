"""Solvers that walk along gradients."""
