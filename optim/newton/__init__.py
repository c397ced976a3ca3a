"""Newton's method without a matrix."""
