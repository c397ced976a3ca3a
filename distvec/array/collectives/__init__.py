"""Functions that move elements between servers: scans, sorts, searches, gathers and scatters."""
