"""Solvers over minibatches."""
