"""A model of ours behind the interface that endpoints speak."""
