"""Models in the formats of Spark's world."""
