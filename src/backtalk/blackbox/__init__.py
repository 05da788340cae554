"""Audits by asking (Liu et al. 2019): replies are seen and, where a model tells, how likely a target is."""
