"""Whole programs that a user would write."""
