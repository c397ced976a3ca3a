"""Arrays made of elements of other arrays: joined, split, shifted, repeated, padded.

All are lazy, made of views, conditions on the index, and elementwise operations. They are fused
with the operations before and after, and servers fetch only elements that change servers.
"""
