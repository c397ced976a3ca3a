"""Expressions: nodes, how they are built, and their dtypes."""
