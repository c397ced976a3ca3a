"""Functions for which elements change place, and so server: scans, sorts, what indices name."""
