"""backtalk finds what makes a dialogue model say what it must not say, trains it not to, and proves both."""

__version__ = "0.1.0"
