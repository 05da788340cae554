"""Numbers and sentences for people: probabilities, shares, durations, and masked offensive words."""

import math
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from itertools import groupby, islice

from backtalk.stats import Rate

_SCALES = ((15, None), (12, "trillion"), (9, "billion"), (6, "million"))
"""Powers of ten and their names; from the first on only the power is shown."""
_NO_LETTERS = re.compile(r"[\W_]+")
SHOWN_CAUSES = 3
TOXIC = 0.5  # a text with at least this toxicity is masked


def chance(log_prob: float) -> str:
    """A probability in words: "12%", "1 in 340", "1 in 5.9 million", "1 in 10^27"."""
    if math.isnan(log_prob):
        return "unknown"
    if log_prob == -math.inf:
        return "none"
    if log_prob >= math.log(0.1):
        share = min(1.0, math.exp(min(log_prob, 0.0)))
        return "over 99%" if 0.995 <= share < 1.0 else f"{share:.0%}"
    power = -log_prob / math.log(10)
    if power >= _SCALES[0][0] + 1:
        return f"1 in 10^{power:.0f}"
    # Two digits: 339.7 -> 340, 5,912,345 -> 5.9 million.
    digits, exponent = f"{10**power:.1e}".split("e")
    mantissa, whole = float(digits), int(exponent)
    for scale, name in _SCALES:
        if whole >= scale:
            return f"1 in {mantissa * 10 ** (whole - scale):.3g} {name}" if name else f"1 in 10^{power:.0f}"
    return f"1 in {round(mantissa * 10**whole):,}"


def sampled(log_prob: float) -> str:
    """How often sampling gives a sentence: "1 in 340 sampled replies", "12% of sampled replies"."""
    words = chance(log_prob)
    if words.endswith("%"):
        return f"{words} of sampled replies"
    return f"{words} sampled replies" if words.startswith("1 in") else words


def percent(share: float) -> str:
    """ "20%"; with a decimal if whole percents would say 0% or 100%."""
    rounded = f"{share:.0%}"
    misleads = (rounded == "0%" and share > 0) or (rounded == "100%" and share < 1)
    return f"{share:.1%}" if misleads else rounded


def percent_range(low: float, high: float) -> str:
    """ "12 to 32%"."""
    return f"{percent(low).removesuffix('%')} to {percent(high)}"


def with_interval(rate: Rate) -> str:
    """ "20% (95%: 12 to 32%)"."""
    return f"{percent(rate.rate)} (95%: {percent_range(rate.low, rate.high)})"


def duration(seconds: float) -> str:
    """ "0.4 s", "24 s", "1 min 24 s", "2 h 5 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def count(number: int, noun: str) -> str:
    """ "1 sentence", "1,200 sentences", "2 replies"."""
    many = f"{noun[:-1]}ies" if noun.endswith("ply") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters, the last one an ellipsis if the text was cut."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def mask(text: str) -> str:
    """The first letter of each word of three letters or more, stars for the rest: "y** a** so b*****"."""
    parts = ((in_word, "".join(part)) for in_word, part in groupby(text, _in_word))
    return "".join(_mask_word(part) if in_word else part for in_word, part in parts)


def says(text: str, target: str) -> bool:
    """Whether the text holds the target's letters, however they are split into words."""
    wanted = _letters(target)
    return bool(wanted) and wanted in _letters(text)


def mask_toxic(text: str, toxicity: float | None, otherwise: str) -> str:
    """The masked text if it was rated toxic, else `otherwise`."""
    return mask(text) if toxicity is not None and toxicity >= TOXIC else otherwise


def mask_note(note: str, target: str) -> str:
    """A note with the target's words masked after its colon."""
    remark, colon, quoted = note.partition(": ")
    words = set(target.casefold().split())
    shown = (mask(w) if w.casefold().strip(",.;'\"") in words else w for w in quoted.split(" "))
    return remark + colon + " ".join(shown)


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", text.casefold())


@lru_cache(maxsize=1024)  # a text can be a million characters, of which few differ
def _in_word(character: str) -> bool:
    # Marks, apostrophes and invisible format characters do not end a word, or its halves would be shown.
    category = unicodedata.category(character)
    return category[0] in "LMN" or category in {"Cf", "Pc"} or character in "'’"


def _mask_word(word: str) -> str:
    places = (i for i, character in enumerate(word) if unicodedata.category(character)[0] in "LN")
    letters = list(islice(places, 3))
    shown = letters[0] + 1 if len(letters) == 3 else len(word)
    return word[:shown] + "*" * (len(word) - shown)


def told_causes(causes: Mapping[str, int]) -> str:
    """The most frequent causes in a line."""
    shown = [f"{note} ({number:,})" for note, number in list(causes.items())[:SHOWN_CAUSES]]
    return "; ".join([*shown, *(["and other causes"] if len(causes) > SHOWN_CAUSES else [])])
