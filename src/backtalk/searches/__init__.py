"""Searches: the algorithms that propose triggers."""
