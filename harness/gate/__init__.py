"""The regression gate: a run against a baseline, one of three answers, and an exit code."""
