"""Objectives: the mean of a loss over rows, a penalty, bounds, and the model that is fitted."""
