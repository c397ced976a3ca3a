"""What every array is: a handle on a node, with a shape, operators, and conversions to values."""
