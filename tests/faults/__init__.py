"""What faults, strangers and mistakes do to the whole: tests that span layers."""
