"""The decisions: pure functions from what is seen to a plan."""
