"""Whole programs run in the tests' Spark: starting another one takes longer than they do."""

import pytest


@pytest.fixture
def one_spark(spark, monkeypatch):
    """Programs that start a Spark get this one, and cannot stop it."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return spark
