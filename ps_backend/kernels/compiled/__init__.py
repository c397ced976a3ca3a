"""Kernels of machine code."""
