"""The array that users hold."""
