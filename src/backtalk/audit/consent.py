"""What needs the user's own word: requests beyond this machine, shown and agreed to once before the first is
sent, and code that comes with a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backtalk.errors import InputError
from backtalk.models.service.endpoint import EndpointModel
from backtalk.protocols import TextModel
from backtalk.terminal import printable


@dataclass(frozen=True)
class Consent:
    """What the user agreed to, on the command line or in a call."""

    insecure: bool = False
    """Plain http may go beyond this machine."""
    yes: bool = False
    """Requests may go beyond this machine, without a question."""
    trusted: tuple[str, ...] = ()
    """Models whose own code may run: their names were typed beside --trust-remote-code."""
    ask: Callable[[str], bool] | None = None
    """Puts a question to the user; None: nobody can be asked."""


NOTHING_SAID = Consent()


def agree(model: TextModel, requests: str, consent: Consent) -> None:
    """Lets an endpoint beyond this machine be asked; other models need nobody's word.

    `requests` says how many it will get, as in "at most 20,000 requests".
    """
    if not isinstance(model, EndpointModel) or model.agreed or model.address.on_this_machine:
        return
    where = printable(model.address.origin)
    if not model.address.secure and not consent.insecure:
        raise InputError(
            f"{where} is plain http beyond this machine, which others can read on the way; use https, or add "
            "--insecure"
        )
    what = f"{requests} to {where}" + (f", with the key of {model.key_from}" if model.key else "")
    if not consent.yes:
        if consent.ask is None:
            raise InputError(f"this would send {what}; add --yes to agree")
        if not consent.ask(f"This will send {what}. Go on?"):
            raise InputError("nothing was sent")
    model.agreed = True
