"""The subjects of a hardening: our LSTMs against targets or frequent replies, and Hugging Face models."""
