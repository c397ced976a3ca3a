"""Behaviour and size of the house, printed and compared with kept files: ``make gate``.

For changes that move or merge code. They must leave ``behaviour.txt`` as it is: plans, messages and
sweeps of each solver, digests of results on 1, 2, 3 and 7 servers, public names. ``size.txt`` has
files and lines of code of each folder, and is there to be compared, not to be met.
"""
