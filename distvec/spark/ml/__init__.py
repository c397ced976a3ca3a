"""Estimators and models with the names and Params of ``pyspark.ml``, trained on servers."""
