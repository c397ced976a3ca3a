"""The functions of the array API standard, with its signatures, for arrays of rank 0 to 2."""
