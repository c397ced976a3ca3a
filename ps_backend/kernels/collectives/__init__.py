"""Collectives on the elements of one server: plain functions of NumPy arrays.

``counting``   counts of what is in each of a few bins
``partition``  indices grouped by the server that holds what they name; elements at random places
``sorting``    elements as unsigned integers in their order, sorted and merged
``running``    scans and linear recurrences, chunk by chunk
``compiled``   the compiled loops of all of them
"""
