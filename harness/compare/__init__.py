"""Finished runs side by side: what each measured, which cases match, and their ratios."""
