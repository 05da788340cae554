"""Searches that see only replies: the reverse generator of Liu et al. 2019 and its baselines."""
