"""The audit of a model that shows its replies and nothing else (Liu et al. 2019)."""
