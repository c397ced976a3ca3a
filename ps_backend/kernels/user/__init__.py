"""Kernels of users, compiled: code is generated here from a checked tree, never taken from one.

========  ==========================================================================================
source    the function that is compiled, as text of this package's own making
helpers   what the generated function calls: what NumPy gives where machines differ, and the clock
machine_code  compiles that
compiled  keeps what was compiled, and runs it
========  ==========================================================================================
"""
