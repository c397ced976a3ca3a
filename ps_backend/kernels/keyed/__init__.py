"""The index and the rows of keyed spaces on one server: plain arrays and compiled loops over them.

Nothing here takes a lock: who calls sees to it that nobody else changes the same object meanwhile.
"""
