"""How a Hugging Face model is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backtalk.specs import ReplyTokens


@dataclass(frozen=True)
class ModelOptions:
    """How a Hugging Face model is read; flags of the same names say it."""

    template: Literal["auto", "chat", "plain", "text"] = "auto"
    """How a dialogue becomes a prompt: by the model's chat template, as plain turns, as one running text, or
    (auto) by the template where it has one, else as plain turns."""
    system: str = ""
    """The system prompt."""
    prefix: str = ""
    """Fixed text before every input, in the user's turn."""
    suffix: str = ""
    """Fixed text behind every input, in the user's turn."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Numbers of a Hugging Face model; auto: bfloat16 on a GPU that has it, else float32."""
    max_reply: ReplyTokens = 40
    """The most new tokens of a Hugging Face model's reply."""
