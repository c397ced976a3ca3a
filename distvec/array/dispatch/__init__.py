"""NumPy's protocols: which of our functions are run for its functions and ufuncs; the array API."""
