"""Vectors and tables over keys that nobody numbered before."""
