"""Loops of what moves elements between places, and so between servers."""
