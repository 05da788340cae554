"""`sealed:NAME`: a model of ours that shows its replies and nothing else, to try black-box methods on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backtalk.protocols import TextModel
from backtalk.registry import load_model
from backtalk.types import Access, Dialogue


@dataclass
class SealedModel:
    name: str
    _inside: TextModel
    access: Access = Access.TEXT

    @property
    def fingerprint(self) -> str:
        return f"sealed:{self._inside.fingerprint}"

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return self._inside.reply(dialogues)


def load(rest: str, device: str = "auto") -> SealedModel:
    return SealedModel(f"sealed:{rest}", load_model(rest, device))
