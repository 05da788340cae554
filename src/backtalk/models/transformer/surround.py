"""Where the user's text stands in a prompt: the tokens before and behind it, and which triggers can be typed.

A trigger is searched as ids and lives on as text. It survives if the prompt that is made from its text holds
exactly its ids between the tokens around it: pieces may grow together, with each other or with what stands
next to them. Where a template's blank goes into the first piece of a text, the blank belongs to the ids and
not to the text (`lead`); likewise behind it (`tail`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.transformer.plain_prompts import cut

Cut = Callable[[Sequence[str]], list[list[int]]]
"""The prompts of dialogues of one utterance each, as ids, in one call."""
WORDS = ("hello", "rain", "Zebra", "42")
"""Stand for the user's text where the vocabulary has no better ones; no two begin or end alike."""
ENOUGH = 6
LOOKED_AT = 5000
"""Tokens among which words are looked for."""
BATCH = 8192
"""Texts cut in one call."""


@dataclass(frozen=True)
class Surround:
    """What is the same in every prompt of one utterance."""

    before: list[int]
    after: list[int]
    lead: str = ""
    tail: str = ""


def find_surround(prompts: Cut, tokenizer: Any, name: str) -> Surround:
    """By what the prompts of a few words have in common."""
    words = _words(tokenizer)
    rows = prompts(words)
    before = _common(rows)
    after = _common([row[len(before) :][::-1] for row in rows])[::-1]
    found = set()
    for word, row in zip(words, rows, strict=True):
        lead, there, tail = read(tokenizer, row[len(before) : len(row) - len(after)]).partition(word)
        found.add((lead, there != "", tail))
    # More than blanks in the way: what stands next to the text grows together with it.
    if len(found) != 1 or any(not there or lead.strip() or tail.strip() for lead, there, tail in found):
        raise InputError(
            f"where the user's text stands in a prompt of {name} can't be told; use another --template, or a "
            "--prefix and --suffix that end and begin with a blank"
        )
    ((lead, _, tail),) = found
    return Surround(before, after, lead, tail)


def read(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def trigger_texts(surround: Surround, tokenizer: Any, triggers: Sequence[Sequence[int]]) -> list[str]:
    """What a user types for each trigger."""
    texts = [read(tokenizer, ids) for ids in triggers]
    return [text.removeprefix(surround.lead).removesuffix(surround.tail) for text in texts]


def surviving(
    surround: Surround, prompts: Cut, tokenizer: Any, triggers: Sequence[Sequence[int]]
) -> list[bool]:
    """Whether each trigger comes back from its text."""
    found: list[bool] = []
    for start in range(0, len(triggers), BATCH):
        part = triggers[start : start + BATCH]
        found += [
            prompt == [*surround.before, *ids, *surround.after]
            for prompt, ids in zip(prompts(trigger_texts(surround, tokenizer, part)), part, strict=True)
        ]
    return found


def searchable_ids(tokenizer: Any, size: int) -> Tensor:
    """(size,), bool: no special tokens, and those alone that can be typed by themselves."""
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ids = [number for number in range(min(size, len(tokenizer))) if number not in special]

    def cut_alone(texts: Sequence[str]) -> list[list[int]]:
        return cut(tokenizer, texts, add_special_tokens=False)

    kept = surviving(Surround([], []), cut_alone, tokenizer, [[number] for number in ids])
    allowed = torch.zeros(size, dtype=torch.bool)
    allowed[[number for number, good in zip(ids, kept, strict=True) if good]] = True
    return allowed


def _words(tokenizer: Any) -> list[str]:
    """Words that the tokenizer knows, no two of which begin or end with the same letter."""
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    found: list[str] = []
    for number in range(min(len(tokenizer), LOOKED_AT)):
        word = "" if number in special else read(tokenizer, [number]).strip()
        fresh = all(word[:1] != other[0] and word[-1:] != other[-1] for other in found)
        if len(word) > 1 and word.isascii() and word.isalpha() and fresh:
            found.append(word)
        if len(found) == ENOUGH:
            break
    return found if len(found) > 1 else list(WORDS)


def _common(rows: Sequence[Sequence[int]]) -> list[int]:
    """The ids that all rows begin with."""
    return [same[0] for same in takewhile(lambda ids: len(set(ids)) == 1, zip(*rows, strict=False))]
