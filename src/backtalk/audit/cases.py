"""The cases of an audit: a target list by name, or a file.

mal: the embedded prototypes. mal-wide: the prototypes widened by the papers' heuristics.
"""

from pathlib import Path

from backtalk.data.targets import load_mal, one_per_prototype, read_targets, widen
from backtalk.errors import InputError
from backtalk.protocols import TextModel, WeightsModel
from backtalk.types import Target

NAMES = ("mal", "mal-wide")
LIST_SIZE = 48  # targets of a list that are tried by default, 12 of each category: a minute of two cores


def read_cases(name: str, model: TextModel, limit: int, seed: int) -> list[Target]:
    """At most `limit` targets of a list or file; without one all of a file or of mal-wide, else 48."""

    def knows(text: str) -> bool:
        return can_say(model, text) if isinstance(model, WeightsModel) else any(map(str.isalnum, text))

    if name not in NAMES:
        if not Path(name).exists() and "." not in name and "/" not in name:
            raise InputError(f"no target list or file {name!r}; lists: {', '.join(NAMES)}")
        found = read_targets(name)
        return found[:limit] if limit else found
    count = limit or LIST_SIZE
    if name == "mal-wide":
        return widen(load_mal(), final_period=knows("."), limit=limit or None)
    # Sentences with unknown words would only be skipped: they come last, and only if all are asked for.
    prototypes = load_mal()
    known = [target for target in prototypes if knows(target.text)]
    return one_per_prototype(known, count, seed) if count <= len(known) else prototypes[:count]


def can_say(model: WeightsModel, text: str) -> bool:
    """Whether a text has at least one word for the model, and no unknown ones."""
    return bool(model.encode_input(text)) and not model.unknown_words(text)
