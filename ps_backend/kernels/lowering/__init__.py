"""From the structure of a sweep to what the engines run."""
