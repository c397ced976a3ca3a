"""The engine of rows: sweeps that do not care for elements alone, run by NumPy chunk by chunk.

``instructions`` says how the steps of a sweep are computed on a chunk, and in which scratch arrays;
``reductions`` what is accumulated of the chunks; ``engine`` walks over the blocks.
"""
