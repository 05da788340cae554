"""The words of the paraphrasing rules, from data/phrases.yaml."""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

Words = tuple[str, ...]


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load((files("backtalk") / "data" / "phrases.yaml").read_bytes())
    return table


@cache
def word_set(*names: str) -> frozenset[str]:
    return frozenset(word for name in names for word in _table()[name].split())


@cache
def forms(name: str) -> dict[str, str]:
    """Words, or words separated by blanks, by a word."""
    return dict(_table()[name])


@cache
def phrases(name: str) -> tuple[Words, ...]:
    return _split(_table()[name])


@cache
def rows(name: str) -> tuple[tuple[Words, ...], ...]:
    """Phrases that can replace each other."""
    return tuple(map(_split, _table()[name]))


def _split(text: str) -> tuple[Words, ...]:
    return tuple(tuple(phrase.split()) for phrase in text.split("/"))
