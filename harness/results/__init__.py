"""A finished run: its tables, its comparisons, its `run.json`."""
