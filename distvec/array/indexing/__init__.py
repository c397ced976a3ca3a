"""``x[key]`` and ``x[key] = value``, by index expressions, masks and indices."""
