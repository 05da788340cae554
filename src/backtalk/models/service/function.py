"""Models of this process that only reply. `py:module:function` is a Python function that takes a conversation
as a list of {"role", "text"} objects, oldest first, and returns the reply. Such a name runs code, so it is
accepted from the command line only, not from a spec or a run folder. `sealed:NAME` is a local model that
shows only its replies, to try black-box methods on.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from backtalk.errors import InputError, unknown
from backtalk.models.service.endpoint import FORM, KEYS, LONGEST_FAULT, SECRET, without_secret
from backtalk.protocols import Meter, Reply, Service, TextModel
from backtalk.registry import is_endpoint, load_model
from backtalk.specs import ModelOptions
from backtalk.terminal import printable
from backtalk.types import Access, Dialogue

FAILED_IN_A_ROW = 10  # failed calls in a row before the run ends


@dataclass
class FunctionModel:
    name: str
    function: Callable[[list[dict[str, str]]], str]
    access: Access = Access.TEXT
    _failed: int = 0  # in a row

    @property
    def fingerprint(self) -> str:
        return self.name

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return [self._call(dialogue) for dialogue in dialogues]

    def answer(self, dialogues: Sequence[Dialogue], meter: Meter) -> Iterator[tuple[int, Reply]]:
        """One call per request: the function may call a paid service, which may fail."""
        for index, dialogue in enumerate(dialogues):
            if not meter.take():
                return
            try:
                reply = self._call(dialogue)
            except InputError:
                raise
            except Exception as error:
                self._failed += 1
                why = describe(error)
                if self._failed >= FAILED_IN_A_ROW:
                    raise InputError(f"{self.name} failed {self._failed} times in a row ({why})") from error
                yield index, Reply("", why)
            else:
                self._failed = 0
                yield index, Reply(reply)

    def _call(self, dialogue: Dialogue) -> str:
        reply = self.function([{"role": turn.role, "text": turn.text} for turn in dialogue])
        if not isinstance(reply, str):
            raise InputError(f"{self.name} returned {type(reply).__name__}; it must return a str")
        return reply


def describe(error: Exception) -> str:
    """The type of an exception and the first line of its message, without the keys of the environment."""
    text = f"{type(error).__name__}: {error}"
    for key in (os.environ.get(variable, "").strip() for variable in KEYS):
        text = without_secret(text, key) if len(key) >= SECRET else text
    return printable(text.splitlines()[0])[:LONGEST_FAULT]


def load(rest: str, device: str = "auto") -> FunctionModel:
    return FunctionModel(f"py:{rest}", find_function(rest))


def find_function(rest: str) -> Callable[..., Any]:
    """`rest` is "module:function"; the current folder is searched too."""
    module_name, _, attribute = rest.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise InputError(f"py:{rest} should read py:module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise InputError(f"py:{rest}: can't import {module_name!r} ({error})") from None
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [name for name in vars(module) if callable(getattr(module, name)) and name[0] != "_"]
        raise unknown(f"function in {module_name}", attribute, names)
    found: Callable[..., Any] = function
    return found


@dataclass
class SealedModel:
    name: str
    _inside: TextModel
    access: Access = Access.TEXT

    def __post_init__(self) -> None:
        self.fingerprint = f"sealed:{self._inside.fingerprint}"
        if isinstance(self._inside, Service):  # each reply costs a request, which may fail
            self.answer = self._inside.answer

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return self._inside.reply(dialogues)


def load_sealed(
    rest: str, device: str = "auto", options: ModelOptions | None = None, trusted: Collection[str] = ()
) -> SealedModel:
    if is_endpoint(rest):  # the user must see where requests go before agreeing to them
        raise InputError(f"an endpoint gives its text only; leave out sealed: and write {FORM}")
    inside = load_model(rest, device, options, [name.removeprefix("sealed:") for name in trusted])
    return SealedModel(f"sealed:{rest}", inside)
