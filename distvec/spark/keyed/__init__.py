"""Models over the keys of DataFrame columns, whose number nobody knows before."""
