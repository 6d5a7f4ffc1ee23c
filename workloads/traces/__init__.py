"""Traces of real traffic: one module a format, and the table of formats."""
