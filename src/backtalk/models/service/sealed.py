"""`sealed:NAME`: a local model that shows only its replies, to try black-box methods on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from backtalk.errors import InputError
from backtalk.models.service.address import FORM
from backtalk.protocols import Service, TextModel
from backtalk.registry import is_endpoint, load_model
from backtalk.specs.model import ModelOptions
from backtalk.types import Access, Dialogue


@dataclass
class SealedModel:
    name: str
    _inside: TextModel
    access: Access = Access.TEXT

    def __post_init__(self) -> None:
        if isinstance(self._inside, Service):  # each reply costs a request, which may fail
            self.answer = self._inside.answer

    @property
    def fingerprint(self) -> str:
        return f"sealed:{self._inside.fingerprint}"

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return self._inside.reply(dialogues)


def load(
    rest: str, device: str = "auto", options: ModelOptions | None = None, trusted: Collection[str] = ()
) -> SealedModel:
    if is_endpoint(rest):  # the user must see where requests go before agreeing to them
        raise InputError(f"an endpoint gives its text only; leave out sealed: and write {FORM}")
    inside = load_model(rest, device, options, [name.removeprefix("sealed:") for name in trusted])
    return SealedModel(f"sealed:{rest}", inside)
