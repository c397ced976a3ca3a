"""What movements compute on the elements of one server: plain functions of NumPy arrays.

``counting``   counts of what is in each of a few bins
``ordered_keys``  unsigned integers in the order of the elements; ``sorting`` sorts and merges them
``partition``  indices grouped by who holds what they name
``random_access``  elements at random places: read, written, joined to others
``running``    scans and linear recurrences, chunk by chunk; ``compiled_running`` are compiled
``reflections``  decompositions of a few rows by Householder's reflections
``scaled``     products that neither overflow nor underflow
"""
