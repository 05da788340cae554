"""Audits by asking (Liu et al. 2019): what a model says is seen and, where it tells, how likely a target is."""
