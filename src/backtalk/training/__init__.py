"""Training: maximum likelihood, and later what hardens a model."""
