"""Text to words and back, by the recipes of He & Glass: punctuation kept in 2019, removed in 2020.

A person must be able to type a trigger, so a recipe must be stable: words that are joined by spaces and cut
again are the same words. Text is therefore cut at white space first, and every rule looks at one chunk alone.
Lower case and contractions are those of the Penn Treebank.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from backtalk import errors

UNKNOWN_WORD = "<unk>"

_HALVES = (("can", "not"), ("gon", "na"), ("wan", "na"), ("got", "ta"), ("lem", "me"), ("gim", "me"))
_FUSED = {"".join(pair): pair for pair in _HALVES}
_CLITIC = r"'(?:s|re|ve|ll|d|m)"
# Letters and digits, joined inside by hyphens and apostrophes (uh-huh, o'clock) and, between digits, by the
# signs of numbers and times (1,000 3.5 20/20 10:30).
_WORD = r"[^\W_]+(?:(?:[-']|(?<=\d)[.,:/](?=\d))[^\W_]+)*"
_ENDS = r"(?![^\W_])"

_WORDS_ONLY = re.compile(rf"{UNKNOWN_WORD}|{_CLITIC}{_ENDS}|{_WORD}")
_WORDS_AND_SIGNS = re.compile(
    rf"""{UNKNOWN_WORD}
    |(?:https?://|www\.)[^\s<>"']*[^\W_]/?    # an address, without the full stop after it
    |<3{_ENDS}
    |[:;=]'?-?[()\[\]dpo3/\\|*]{_ENDS}        # an emoticon, in lower case by now
    |{_CLITIC}{_ENDS}
    |[^\W\d_](?:\.[^\W\d_])+\.?{_ENDS}        # u.s. e.g. p.m.
    |{_WORD}
    |\.\.+|--+
    |\S""",
    re.VERBOSE,
)
_SUFFIX = re.compile(rf"(?<=[^\W_])(?:n't|{_CLITIC})$")
# Marks that NFKC would turn into a space and an accent, or leave as they are.
_QUOTES = str.maketrans("‘’‚‛′´`ʼ“”„‟″«»", "''''''''" + '"""""""')
_ASCII_CONTROLS = dict.fromkeys(i for i in [*range(32), 127] if not chr(i).isspace())


@dataclass(frozen=True)
class Recipe:
    name: str
    help: str
    keep_punctuation: bool = True

    def words(self, text: str) -> list[str]:
        """The words of a text: lower case, contractions apart."""
        return [word for chunk in _normal(text).split() for word in _cut(chunk, self.keep_punctuation)]

    def show(self, words: Sequence[str]) -> str:
        """The words as people write them."""
        return detokenise(words)


class Characters(Recipe):
    """Every character is a word, as in the character task of He & Glass 2019, appendix B. Case is kept; white
    space is ignored, so "chair" and "c h a i r" are the same five words."""

    def words(self, text: str) -> list[str]:
        return list("".join(text.split()))

    def show(self, words: Sequence[str]) -> str:
        return "".join(words)


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("he-glass-2019", "lower case, Treebank contractions, punctuation kept"),
        Recipe("he-glass-2020", "lower case, Treebank contractions, punctuation removed", False),
        Characters("characters", "each character is a word, case kept, white space ignored"),
    )
}


def get_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise errors.unknown("recipe", name, RECIPES)
    return RECIPES[name]


def _normal(text: str) -> str:
    """Lower case, straight quotes, NFKC, no invisible characters."""
    if text.isascii():
        plain = text if text.isprintable() else text.translate(_ASCII_CONTROLS)  # which is slow
        return plain.replace("`", "'").lower()
    # Repeated: if a character is dropped, an accent may join the letter before it.
    while (plain := _normal_once(text)) != text:
        text = plain
    return text


def _normal_once(text: str) -> str:
    text = unicodedata.normalize("NFKC", text.translate(_QUOTES).lower())
    # Category C: controls, zero-width and bidi marks, surrogates. The range: selectors that follow emoji.
    hidden = (unicodedata.category(c)[0] == "C" or "\ufe00" <= c <= "\ufe0f" for c in text)
    return "".join(c for c, gone in zip(text, hidden, strict=True) if c.isspace() or not gone)


@lru_cache(maxsize=1 << 17)
def _cut(chunk: str, keep_punctuation: bool) -> tuple[str, ...]:
    pattern = _WORDS_AND_SIGNS if keep_punctuation else _WORDS_ONLY
    words: list[str] = []
    for piece in pattern.findall(chunk):
        suffix = _SUFFIX.search(piece)
        if piece in _FUSED:
            words += _FUSED[piece]
        elif suffix:
            words += [*_cut(piece[: suffix.start()], keep_punctuation), suffix.group()]
        elif piece.startswith(("..", "--")):
            words.append(piece[0] * (3 if piece[0] == "." else 2))
        else:
            words.append(piece)
    return tuple(words)


_CLOSING = frozenset({".", ",", "!", "?", ";", ":", "...", ")", "]", "}", "%"})
_OPENING = frozenset({"(", "[", "{", "$", "#", "@"})
_SENTENCE_END = frozenset({".", "!", "?"})


def detokenise(words: Sequence[str]) -> str:
    """The words as a text for people: contractions joined, capitals at the start of sentences. A model gets
    the words joined by spaces instead."""
    text = ""
    glue = True  # nothing between this word and the one before
    capital = True
    open_quotes: set[str] = set()
    previous = ""
    for word in words:
        shown = "[?]" if word == UNKNOWN_WORD else "I" if word == "i" else word
        is_suffix = word == "n't" or re.fullmatch(_CLITIC, word) is not None
        closes = word in _CLOSING or word in open_quotes
        if not (glue or closes or is_suffix or (previous, word) in _HALVES):
            text += " "
        text += shown[:1].upper() + shown[1:] if capital and not is_suffix else shown
        glue = word in _OPENING
        if word in ('"', "'"):
            glue = word not in open_quotes
            open_quotes ^= {word}
        elif word[:1].isalnum() or word == UNKNOWN_WORD or is_suffix:
            capital = False
        elif word in _SENTENCE_END:
            capital = True
        previous = word
    return text
