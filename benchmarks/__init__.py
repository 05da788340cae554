"""Measurements against other tools, run by hand."""
