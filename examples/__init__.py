"""Complete programs, written as users write them. In a clone: ``python -m examples.NAME``."""
