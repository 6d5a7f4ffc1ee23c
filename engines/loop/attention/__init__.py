"""Attention over a paged cache, behind one small interface."""
