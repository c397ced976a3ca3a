"""Tests of releases: the sdist, the wheel, and the workflows that build and test them."""
