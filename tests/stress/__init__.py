"""Long repetitions of what must never go wrong: ``make stress`` prints a table."""
