"""The base of all arrays: a handle on a node, with shape, operators, and conversions."""
