"""Scorers: numbers for what a search found, computed from the model alone and stored with the finding."""
