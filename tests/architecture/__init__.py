"""What someone new adds: an op, a reduction, a command. Each is registered in one place, its test.

It runs on real servers, in processes of their own that import the test module as well.
"""
