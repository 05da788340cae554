"""Chat with a model, in the terminal (`backtalk chat`) or on the chat page, with each word's probability."""

import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from backtalk.audit.consent import Consent, agree
from backtalk.data.vocabulary import EOS
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.protocols import LogprobModel, ShowsTokens, TextModel
from backtalk.registry import load_model
from backtalk.report.record import END
from backtalk.specs import ModelOptions
from backtalk.terminal import make_console, printable
from backtalk.types import Dialogue, Turn
from backtalk.web.http import HttpError, is_whole_number
from backtalk.wording import chance

MOST_TURNS, LONGEST_TURN = 100, 4_000  # turns that the page may send, and characters in one


class Reply(NamedTuple):
    text: str
    words: list[tuple[str, float]]
    """(word, log-probability), the end of the turn last; empty if the model gives replies only."""

    @property
    def log_prob(self) -> float:
        return sum(log_prob for _, log_prob in self.words)


def reply_to(model: TextModel, dialogue: Dialogue, sample: bool = False, seed: int = 0) -> Reply:
    """The greedy reply or a sampled one."""
    if isinstance(model, LocalModel):
        inputs = model.encode_dialogues([dialogue])
        (ids,) = model.sample_ids(inputs, [seed]) if sample else model.greedy_ids(inputs)
        labels = [END if i == EOS else word for i, word in zip(ids, model.vocabulary.words(ids), strict=True)]
        log_probs = model.score(inputs, model.pad_rows([ids])).log_probs[0].tolist()
        return Reply(model.read(ids), list(zip(labels, log_probs, strict=True)))
    if not isinstance(model, LogprobModel):
        return Reply(model.reply([dialogue])[0], [])
    (reply,) = model.sample([dialogue], [seed]) if sample else model.reply([dialogue])
    (log_probs,) = model.log_prob([dialogue], [reply])
    labels = [*model.tokens(reply), END] if isinstance(model, ShowsTokens) else []
    if len(labels) != len(log_probs):
        labels = [str(i + 1) for i in range(len(log_probs))]
    return Reply(reply, list(zip(labels, log_probs, strict=True)))


# In the terminal


def chat(
    model: str,
    say: list[str] | None,
    probabilities: bool,
    sample: bool,
    beam: int,
    seed: int,
    device: str,
    consent: Consent,
    options: ModelOptions,
) -> None:
    """Reads turns from `say` or standard input and prints the replies."""
    loaded = load_model(model, device, options, consent.trusted)
    if (probabilities or sample or beam) and not isinstance(loaded, LogprobModel):
        raise InputError(f"{model} shows replies only; leave out --probabilities, --sample and --beam")
    if beam and not isinstance(loaded, LocalModel):
        raise InputError(f"--beam is for local LSTM models; leave it out with {model}")
    agree(loaded, "a request for each thing you say", consent)
    console = make_console(soft_wrap=True)
    keyboard = say is None and sys.stdin.isatty()
    if keyboard:
        console.print(f"Talking with {model}. An empty line or Ctrl-D ends the chat.", style="dim")
    history: list[Turn] = []
    for number, text in enumerate(_read_lines(keyboard) if say is None else say):
        if not keyboard:
            console.print(f"you> {printable(text)}")
        history.append(Turn("user", text))
        if isinstance(loaded, LocalModel) and beam:
            best = loaded.beams([tuple(history)], beam)[0]
            reply, lines = best[0][0], [f"{chance(log_prob)}  {text}" for text, log_prob in best]
        else:
            found = reply_to(loaded, tuple(history), sample, seed + number)
            parts = [f"{word} {math.exp(log_prob):.1%}" for word, log_prob in found.words]
            whole = "  ".join(parts) + f"   (whole reply: {chance(found.log_prob)})"
            reply, lines = found.text, [whole] if probabilities else []
        history.append(Turn("model", reply))
        console.print(f"{model}> {printable(reply)}", style="bold")
        for line in lines:
            console.print(f"    {printable(line)}", style="dim")


def _read_lines(keyboard: bool) -> Iterator[str]:
    while True:
        try:
            line = input("you> " if keyboard else "")
        except EOFError:
            return
        except UnicodeDecodeError:
            raise InputError("standard input is not UTF-8 text") from None
        if keyboard and not line.strip():
            return
        if line.strip():
            yield line


# On the chat page


class PageChat:
    """The chat page's model, loaded when it is first needed. It gives one reply at a time."""

    def __init__(self, name: str, load: Callable[[], TextModel]) -> None:
        self.name = name
        self._load = load
        self._model: TextModel | None = None
        self._lock = threading.Lock()

    def load(self) -> TextModel:
        with self._lock:
            self._model = self._model or self._load()
            return self._model

    def reply(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to {"turns": [...], "sample": bool, "seed": int}, with each word's probability."""
        dialogue, seed = read_turns(asked.get("turns")), asked.get("seed", 0)
        if not is_whole_number(seed, 0, (1 << 32) - 1):
            raise HttpError(400, "the seed is a whole number")
        model = self.load()
        if asked.get("sample") and not isinstance(model, LogprobModel):
            raise HttpError(400, f"{self.name} gives its own replies only; sampling is not offered")
        try:
            with self._lock:
                reply = reply_to(model, dialogue, bool(asked.get("sample")), seed)
        except InputError:
            raise
        except Exception as error:
            why = printable(f"{type(error).__name__}: {error}")[:300]
            raise HttpError(502, f"the model failed: {why}") from error
        words = [
            {"text": printable(word), "log_prob": log_prob, "share": math.exp(min(log_prob, 0.0))}
            for word, log_prob in reply.words
            if math.isfinite(log_prob)
        ]
        whole = chance(reply.log_prob) if reply.words else ""
        return {"reply": printable(reply.text), "words": words, "whole": whole}


def read_turns(turns: Any) -> Dialogue:
    """The turns that the page sent, the user's last."""
    if not isinstance(turns, list) or not 0 < len(turns) <= MOST_TURNS:
        raise HttpError(400, f"send 1 to {MOST_TURNS} turns; start a new conversation if there are more")
    read = []
    for place, turn in enumerate(turns):
        role, text = (turn.get("role"), turn.get("text")) if isinstance(turn, dict) else (None, None)
        if role != ("user" if (len(turns) - place) % 2 else "model") or not isinstance(text, str):
            raise HttpError(400, "turns alternate between user and model, the last is the user's")
        if len(text) > LONGEST_TURN:
            raise HttpError(400, f"a turn may have {LONGEST_TURN:,} characters")
        read.append(Turn(role, text))
    if not read[-1].text.strip():
        raise HttpError(400, "say something")
    return tuple(read)
