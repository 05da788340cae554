"""Before the first request to an endpoint beyond this machine its owner says yes, once a command."""

from __future__ import annotations

from collections.abc import Callable

from backtalk.protocols import TextModel

Consent = Callable[[TextModel, int], None]
"""Given the model and the most requests that it may get; raises InputError where the answer is no."""


def no_questions(model: TextModel, requests: int) -> None:
    """For models of our own and for tests."""
