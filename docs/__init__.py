"""Pages, and what makes those that are made from code."""
