"""Training: likelihood, negative training, preferences, REINFORCE, adapters; with checkpoints."""
