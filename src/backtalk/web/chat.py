"""`backtalk chat`: talk with a model and see, on request, how likely each word of its reply was."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from backtalk.audit.consent import Consent, agree
from backtalk.data.vocabulary import EOS
from backtalk.errors import InputError
from backtalk.models.lstm.decode import Sampling
from backtalk.models.lstm.model import LocalModel
from backtalk.protocols import LogprobModel, ShowsTokens, TextModel
from backtalk.registry import load_model
from backtalk.specs.model import ModelOptions
from backtalk.terminal import make_console, printable
from backtalk.types import Dialogue, Turn
from backtalk.wording import chance

END = "(end)"
"""How the end-of-turn token is labelled."""


@dataclass(frozen=True)
class ChatSettings:
    probabilities: bool = False
    sample: bool = False
    beam: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


def chat(
    name: str,
    say: list[str] | None,
    settings: ChatSettings,
    device: str,
    consent: Consent,
    options: ModelOptions,
) -> None:
    model = load_model(name, device, options, consent.trusted)
    _refuse(model, name, settings)
    agree(model, "a request for each thing you say", consent)
    console = make_console(soft_wrap=True)
    talking = say is None and sys.stdin.isatty()
    if talking:
        console.print(f"Talking with {name}. An empty line or Ctrl-D ends the chat.", style="dim")
    history: list[Turn] = []
    for number, text in enumerate(_utterances(say, talking)):
        if not talking:
            console.print(f"you> {printable(text)}")
        history.append(Turn("user", text))
        reply, lines = _answer(model, tuple(history), settings, settings.seed + number)
        history.append(Turn("model", reply))
        console.print(f"{name}> {printable(reply)}", style="bold")
        for line in lines:
            console.print(f"    {printable(line)}", style="dim")


def _refuse(model: TextModel, name: str, settings: ChatSettings) -> None:
    """What the model can't show."""
    if isinstance(model, LocalModel):
        return
    asks_more = settings.probabilities or settings.sample or settings.beam
    if asks_more and not isinstance(model, LogprobModel):
        raise InputError(
            f"{name} shows its replies only; leave out --probabilities, --sample, --beam and --decode"
        )
    if settings.beam:
        raise InputError(f"--beam and --decode are for models of ours; leave them out with {name}")
    if settings.sample and (settings.temperature, settings.top_k, settings.top_p) != (1.0, 0, 1.0):
        raise InputError(
            f"--temperature, --top-k and --top-p are for models of ours; leave them out with {name}"
        )


def _utterances(say: list[str] | None, talking: bool) -> Iterator[str]:
    if say is not None:
        yield from say
        return
    while True:
        try:
            line = input("you> ") if talking else input()
        except EOFError:
            return
        except UnicodeDecodeError:
            raise InputError("standard input is not UTF-8 text") from None
        if talking and not line.strip():
            return
        if line.strip():
            yield line


class Said(NamedTuple):
    """A reply, and the log-probability of each of its words; none where the model shows its replies only."""

    reply: str
    words: list[tuple[str, float]]
    """The end of the turn last."""

    @property
    def log_prob(self) -> float:
        return sum(log_prob for _, log_prob in self.words)


def answer(model: TextModel, dialogue: Dialogue, sampling: Sampling | None = None, seed: int = 0) -> Said:
    """The greedy reply or, with `sampling`, a sampled one; the sampling's numbers are for models of ours."""
    if isinstance(model, LocalModel):
        inputs = model.encode_dialogues([dialogue])
        (ids,) = model.sample_ids(inputs, [seed], sampling) if sampling else model.greedy_ids(inputs)
        return _said(model, inputs, ids)
    if not isinstance(model, LogprobModel):
        return Said(model.reply([dialogue])[0], [])
    (reply,) = model.sample([dialogue], [seed]) if sampling else model.reply([dialogue])
    (log_probs,) = model.log_prob([dialogue], [reply])
    tokens = [*model.tokens(reply), END] if isinstance(model, ShowsTokens) else []
    labels = tokens if len(tokens) == len(log_probs) else [str(i + 1) for i in range(len(log_probs))]
    return Said(reply, list(zip(labels, log_probs, strict=True)))


def _answer(model: TextModel, dialogue: Dialogue, settings: ChatSettings, seed: int) -> tuple[str, list[str]]:
    """The reply, and the lines to show under it."""
    sampling = Sampling(settings.temperature, settings.top_k, settings.top_p) if settings.sample else None
    if isinstance(model, LocalModel) and settings.beam:
        best = model.beams([dialogue], settings.beam)[0]
        return best[0][0], [f"{chance(log_prob)}  {text}" for text, log_prob in best]
    said = answer(model, dialogue, sampling, seed)
    return said.reply, [_chances(said)] if settings.probabilities else []


def _said(model: LocalModel, inputs: Tensor, ids: list[int]) -> Said:
    words = [END if i == EOS else word for i, word in zip(ids, model.vocabulary.words(ids), strict=True)]
    log_probs = model.score(inputs, model.pad_rows([ids])).log_probs[0].tolist()
    return Said(model.read(ids), list(zip(words, log_probs, strict=True)))


def _chances(said: Said) -> str:
    parts = [f"{word} {math.exp(log_prob):.1%}" for word, log_prob in said.words]
    return "  ".join(parts) + f"   (whole reply: {chance(said.log_prob)})"
