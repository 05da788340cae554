"""How a Hugging Face model is read. It stands with the specs, whose flags it feeds; models find it here."""

from backtalk.spec import ModelOptions

__all__ = ["ModelOptions"]
