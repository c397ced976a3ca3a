"""Server processes: starting, watching, and the command line."""
