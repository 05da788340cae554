"""The prompt of a dialogue as token ids: by a chat template, as plain turns, as running text, or for an
encoder."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

from backtalk.errors import InputError
from backtalk.specs import ModelOptions
from backtalk.types import Dialogue, Turn

MARK = "backtalkmark"  # replaces a text to find the template's own words around it
SETTINGS = {"date_string": "26 Jul 2024", "enable_thinking": False}
"""Variables of chat templates: a fixed date, so that a run can be repeated, and no thinking aloud."""


class Prompts:
    """Plain turns, as DialoGPT was trained: each turn is followed by the end-of-text token. A system prompt
    is the first turn. With `running` a dialogue is one running text without ends of turn, as a causal model
    reads it that plays with a learnt adversary (searches/ast/players.py)."""

    end: int  # the end-of-turn token
    stops: frozenset[int]  # tokens that end a reply
    lead: tuple[int, ...] = ()  # tokens that a decoder reads before the reply; none for a causal model

    def __init__(self, tokenizer: Any, system: str, stops: Collection[int], running: bool = False) -> None:
        self._tokenizer, self._system, self._running = tokenizer, system, running
        self._first, self._last = special_around(tokenizer)
        self._end_with(end_of_text(tokenizer, stops), stops)

    def _end_with(self, end: int, stops: Collection[int]) -> None:
        self.end, self.stops = end, frozenset({*stops, end})

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        texts = [self._system] * bool(self._system) + [turn.text for turn in dialogue]
        turns = ([*ids, *[self.end] * (not self._running)] for ids in token_ids(self._tokenizer, texts))
        return [*self._first, *chain(*turns)] or [self.end]

    def first_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """`prompt_ids` of dialogues of one utterance, in one call of the tokenizer."""
        before = self.prompt_ids(()) if self._system else self._first
        after = [self.end] * (not self._running)
        return [[*before, *ids, *after] or [self.end] for ids in token_ids(self._tokenizer, texts)]

    def fixed(self, ids: Sequence[int]) -> tuple[int, int]:
        """The numbers of tokens at the start and at the end of a prompt that stay when it is truncated."""
        first, last = len(self._first), len(self._last)
        return first * (list(ids[:first]) == self._first), last * (list(ids[-last:]) == self._last)

    def reply_ids(self, text: str) -> list[int]:
        if self._running:
            return self._ids(text if text[:1].isspace() else f" {text}") or [self.end]
        return [*self._ids(text.strip()), self.end]

    def text_ids(self, text: str) -> tuple[list[int], list[int]]:
        """The tokens before a user's first utterance, and the utterance."""
        return self._first or [self.end], self._ids(text.strip())

    def _ids(self, text: str) -> list[int]:
        return token_ids(self._tokenizer, [text])[0]


class ChatPrompts(Prompts):
    """The model's own chat template, which writes every special token. If it has no system role, the system
    prompt is put before the first utterance. A reply is tokenised behind the prompt and ends with the first
    special token that the template puts behind a reply."""

    def __init__(self, tokenizer: Any, system: str, stops: Collection[int]) -> None:
        self._tokenizer, self._system, self._has_system_role = tokenizer, "", False
        self._first, self._last = [tokenizer.bos_token_id], []
        hello = Turn("user", "hello")
        with suppress(InputError):
            self._has_system_role = MARK in self._render([Turn("system", MARK), hello])
        self._system = system
        self._stem = self._render([hello], reply_follows=True)
        whole = self._render([hello, Turn("model", MARK)])
        written = whole.removeprefix(self._stem) if whole.startswith(self._stem) else MARK
        self._before, _, after = written.partition(MARK)  # some templates write a space before a reply
        special = {*stops, *tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        ends = [token for token in self._ids(after or whole.rpartition(MARK)[2]) if token in special]
        self._end_with(ends[0] if ends else end_of_text(tokenizer, stops), stops)
        self._before_user = self._render([Turn("user", MARK)]).partition(MARK)[0]

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        return self._ids(self._render(dialogue, reply_follows=True))

    def first_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return token_ids(self._tokenizer, [self._render_first(text) for text in texts])

    @cached_property
    def _render_first(self) -> Callable[[str], str]:
        """Renders a user's only utterance: by the text that the template puts around it or, if the template
        changes the utterance in more than its outer blanks, by the template."""

        def by_template(text: str) -> str:
            return self._render([Turn("user", text)], reply_follows=True)

        left, mark, right = by_template(MARK).partition(MARK)
        rows = [f" {MARK} ", f"\n{MARK}?\t", f"{MARK} <b> {MARK.title()}"]
        plain: Callable[[str], str] = lambda text: f"{left}{text}{right}"  # noqa: E731
        for way in (plain, lambda text: plain(text.strip())):
            if mark and all(by_template(row) == way(row) for row in rows):
                return way
        return by_template

    def reply_ids(self, text: str) -> list[int]:
        return [*self._continued(self._stem, self._before + text.strip()), self.end]

    def text_ids(self, text: str) -> tuple[list[int], list[int]]:
        return self._ids(self._before_user), self._continued(self._before_user, text.strip())

    def typed_ids(self, dialogue: Dialogue, text: str) -> tuple[list[int], list[int]]:
        """The prompt up to the end of the user's last turn, and the tokens of a text that continues it."""
        *earlier, last = dialogue
        start = self._render([*earlier, last._replace(text=last.text + MARK)]).rpartition(MARK)[0]
        return self._ids(start), self._continued(start, text)

    def _continued(self, start: str, text: str) -> list[int]:
        """The tokens of a text behind `start`."""
        if not text:
            return []
        first, whole = self._ids(start), self._ids(start + text)
        return whole[len(first) :] if whole[: len(first)] == first else self._ids(text)

    def _render(self, dialogue: Sequence[Turn], reply_follows: bool = False) -> str:
        turns = list(dialogue)
        if self._system and self._has_system_role:
            turns = [Turn("system", self._system), *turns]
        elif self._system and turns and turns[0].role == "user":
            turns[0] = Turn("user", f"{self._system}\n\n{turns[0].text}")
        roles = {"user": "user", "system": "system"}
        messages = [{"role": roles.get(turn.role, "assistant"), "content": turn.text} for turn in turns]
        try:
            how = {"tokenize": False, "add_generation_prompt": reply_follows, **SETTINGS}
            text: str = self._tokenizer.apply_chat_template(messages, **how)
        except Exception as error:  # a template is a third party's program
            why = " ".join(str(error).split())
            raise InputError(f"the model's chat template refuses the dialogue ({why})") from None
        return text


class EncoderPrompts(Prompts):
    """The input of an encoder: one turn as it is; several turns as BlenderBot was trained (two blanks
    between, one before the user's), by the chat template, or a line each. The decoder starts with the special
    tokens that the tokenizer writes before a reply (`lead`)."""

    def __init__(
        self, tokenizer: Any, system: str, stops: Collection[int], start: int, chat: Prompts | None, kind: str
    ) -> None:
        self._tokenizer, self._system, self._chat = tokenizer, system, chat
        self._blenderbot = kind.startswith("blenderbot")
        self._first, self._last = special_around(tokenizer)
        self._end_with(self._last[-1] if self._last else end_of_text(tokenizer, stops), stops)
        self.lead = (start, *self._first)

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        if self._chat is not None:
            return self._chat.prompt_ids(dialogue)
        texts = [turn.text for turn in dialogue]
        if self._blenderbot and len(dialogue) > 1:
            texts = [" " * (turn.role == "user") + turn.text for turn in dialogue]
        return token_ids(self._tokenizer, [self._joined(texts)], special=True)[0]

    def first_ids(self, texts: Sequence[str]) -> list[list[int]]:
        if self._chat is not None:
            return self._chat.first_ids(texts)
        return token_ids(self._tokenizer, [self._joined([text]) for text in texts], special=True)

    def _joined(self, texts: list[str]) -> str:
        return ("  " if self._blenderbot else "\n").join([self._system] * bool(self._system) + texts)

    def reply_ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text_target=text.strip())["input_ids"]
        return [*ids[len(self._first) : len(ids) - len(self._last)], self.end]

    def text_ids(self, text: str) -> tuple[list[int], list[int]]:
        raise InputError("an encoder-decoder model does not say how likely an input is; name a causal one")


def make_prompts(name: str, network: Any, tokenizer: Any, options: ModelOptions) -> Prompts:
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if options.template == "chat" and not has_template:
        raise InputError(f"{name} has no chat template; use --template plain")
    config, settings = network.config, network.generation_config
    # Every token at which the model's own settings end a reply.
    ends = [getattr(source, "eos_token_id", None) for source in (settings, config)]
    listed = [token for one in ends for token in (one if isinstance(one, list) else [one])]
    stops = {int(token) for token in listed if token is not None}
    uses_chat = has_template and options.template in ("auto", "chat")
    chat = ChatPrompts(tokenizer, options.system, stops) if uses_chat else None
    if config.is_encoder_decoder:
        if options.template == "text":
            raise InputError(f"{name} has an encoder; --template text is for causal models")
        starts = (settings.decoder_start_token_id, config.decoder_start_token_id, settings.bos_token_id)
        start = next((token for token in starts if token is not None), None)
        if start is None:
            raise InputError(f"the config of {name} has no decoder_start_token_id; add it")
        return EncoderPrompts(tokenizer, options.system, stops, int(start), chat, str(config.model_type))
    return chat or Prompts(tokenizer, options.system, stops, running=options.template == "text")


def token_ids(tokenizer: Any, texts: Sequence[str], special: bool = False) -> list[list[int]]:
    """The tokens of many texts in one call, with the tokenizer's `special` tokens around each or without."""
    return tokenizer(list(texts), add_special_tokens=special)["input_ids"] if texts else []


def text_of(tokenizer: Any, ids: Sequence[int], special: bool = False) -> str:
    """The text of some tokens, with the `special` ones or without."""
    how = {"skip_special_tokens": not special, "clean_up_tokenization_spaces": False}
    return str(tokenizer.decode(list(ids), **how))


def special_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and behind a text."""
    (around,), (alone,) = (token_ids(tokenizer, ["hello"], special) for special in (True, False))
    for start in range(len(around) - len(alone) + 1):
        if around[start : start + len(alone)] == alone:
            return around[:start], around[start + len(alone) :]
    return [], []


def end_of_text(tokenizer: Any, stops: Collection[int]) -> int:
    """The tokenizer's end of text, else the first token that ends the model's replies."""
    own = tokenizer.eos_token_id
    if own is None and not stops:
        raise InputError("the model has no end-of-turn token; set eos_token in its tokenizer_config.json")
    return int(min(stops) if own is None else own)


def keep_newest(ids: list[int], room: int, first: int, last: int = 0) -> list[int]:
    """The newest tokens that fit `room`, behind the `first` ones; the `last` ones are kept in any case."""
    return ids if len(ids) <= room else ids[:first] + ids[len(ids) - max(room - first, last) :]
