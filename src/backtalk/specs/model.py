"""The settings of a Hugging Face model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from backtalk.specs import ReplyTokens


@dataclass(frozen=True)
class ModelOptions:
    title: ClassVar = "how a Hugging Face model is prompted and loaded"
    owner: ClassVar = "Hugging Face models"

    template: Literal["auto", "chat", "plain", "text"] = "auto"
    """Format of the prompt: the model's chat template, plain turns or running text; auto uses the chat
    template if there is one, else plain turns."""
    system: str = ""
    """The system prompt."""
    prefix: str = ""
    """Text before every input, in the user's turn."""
    suffix: str = ""
    """Text after every input, in the user's turn."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights; auto: bfloat16 on a GPU that supports it, else float32."""
    max_reply: ReplyTokens = 40
    """Tokens of a reply, at most."""
