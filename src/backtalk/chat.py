"""`backtalk chat`: talk with a model and see, on request, how likely each word of its reply was."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from torch import Tensor

from backtalk.consent import Consent, agree
from backtalk.data.vocabulary import EOS
from backtalk.errors import InputError
from backtalk.models.decode import Sampling
from backtalk.models.local import LocalModel
from backtalk.models.mmi import MMI, language_model_of, mmi_beams, mmi_ids
from backtalk.protocols import LogprobModel, ShowsTokens, TextModel
from backtalk.registry import load_model
from backtalk.spec import ModelOptions
from backtalk.terminal import printable
from backtalk.types import Dialogue, Turn
from backtalk.wording import chance


@dataclass(frozen=True)
class ChatSettings:
    probabilities: bool = False
    sample: bool = False
    beam: int = 0
    mmi: MMI | None = None
    """Decode by this score instead of the plain likelihood."""
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
    model = load_model(name, device, options)
    _refuse(model, name, settings)
    if settings.mmi and isinstance(model, LocalModel):
        language_model_of(model)
    agree(model, "a request for each thing you say", consent)
    console = Console(highlight=False, markup=False, soft_wrap=True)
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
    asks_more = settings.probabilities or settings.sample or settings.beam or settings.mmi
    if asks_more and not isinstance(model, LogprobModel):
        raise InputError(
            f"{name} shows its replies only; leave out --probabilities, --sample, --beam and --decode"
        )
    if settings.beam or settings.mmi:
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


def _answer(model: TextModel, dialogue: Dialogue, settings: ChatSettings, seed: int) -> tuple[str, list[str]]:
    """The reply, and the lines to show under it."""
    if not isinstance(model, LocalModel):
        if not isinstance(model, LogprobModel):
            return model.reply([dialogue])[0], []
        (reply,) = model.sample([dialogue], [seed]) if settings.sample else model.reply([dialogue])
        return reply, [_token_chances(model, dialogue, reply)] if settings.probabilities else []
    inputs = model.encode_dialogues([dialogue])
    if settings.beam and settings.mmi:
        ranked = mmi_beams(model, inputs, settings.beam, settings.mmi)[0]
        lines = [f"{one.score:7.2f}  {chance(one.log_prob)}  {model.read(one.ids)}" for one in ranked]
        return model.read(ranked[0].ids), lines
    if settings.beam:
        best = model.beams([dialogue], settings.beam)[0]
        return best[0][0], [f"{chance(log_prob)}  {text}" for text, log_prob in best]
    if settings.sample:
        sampling = Sampling(settings.temperature, settings.top_k, settings.top_p)
        (ids,) = model.sample_ids(inputs, [seed], sampling)
    elif settings.mmi:
        (ids,) = mmi_ids(model, inputs, settings.mmi)
    else:
        (ids,) = model.greedy_ids(inputs)
    lines = [_word_chances(model, inputs, ids)] if settings.probabilities else []
    return model.read(ids), lines


def _word_chances(model: LocalModel, inputs: Tensor, ids: list[int]) -> str:
    words = ["(end)" if i == EOS else word for i, word in zip(ids, model.vocabulary.words(ids), strict=True)]
    log_probs = model.score(inputs, model.pad_rows([ids])).log_probs[0].tolist()
    parts = [f"{word} {math.exp(lp):.1%}" for word, lp in zip(words, log_probs, strict=True)]
    return "  ".join(parts) + f"   (whole reply: {chance(sum(log_probs))})"


def _token_chances(model: LogprobModel, dialogue: Dialogue, reply: str) -> str:
    (log_probs,) = model.log_prob([dialogue], [reply])
    tokens = [*model.tokens(reply), "(end)"] if isinstance(model, ShowsTokens) else []
    labels = tokens if len(tokens) == len(log_probs) else [str(i + 1) for i in range(len(log_probs))]
    parts = [f"{token} {math.exp(lp):.1%}" for token, lp in zip(labels, log_probs, strict=True)]
    return "  ".join(parts) + f"   (whole reply: {chance(sum(log_probs))})"
