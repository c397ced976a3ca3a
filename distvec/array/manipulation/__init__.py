"""Arrays made of other arrays' elements at other places: joined, split, shifted, repeated, padded.

All of it is lazy, and made of views, conditions on the index, and what is elementwise: it fuses
with what comes before and after, and servers fetch from each other only what lands elsewhere.
"""
