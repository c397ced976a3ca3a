"""Objectives over DataFrames: evaluated where the rows are, by Spark jobs or resident tasks."""
