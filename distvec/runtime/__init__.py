"""Evaluation: from asked nodes to values."""
