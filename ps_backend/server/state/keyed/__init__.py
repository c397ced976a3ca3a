"""Keyed spaces on one server: keys, the rows of arrays over them, and programs over these."""
