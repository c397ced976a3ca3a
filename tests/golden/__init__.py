"""Printed plans, kept beside the tests: a change of plan shows as a difference of text."""
