"""Objectives: wrappers, and checks of their gradients."""
