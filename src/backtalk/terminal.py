"""What may reach a terminal: model output and corpora are untrusted text."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """The text without control, bidirectional-override and zero-width characters; tabs and line breaks
    become spaces."""
    if text.isprintable():  # nothing of these, and no separator but the space
        return text
    kept = (" " if c in "\t\r\n\u2028\u2029" else c for c in text)
    return "".join(c for c in kept if unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn"})
