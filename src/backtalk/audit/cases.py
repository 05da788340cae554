"""The cases of an audit: a target list by name, or a file.

mal: the embedded prototypes. mal-wide: the prototypes widened by the papers' heuristics. normal: replies
that the model gives anyway, so a good search finds them. random: frequent words in random order, which a good
model never says. normal and random depend on the model, and are the same for the same seed.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from backtalk.data.corpora import reference_pairs
from backtalk.data.targets import load_mal, normal_list, one_per_prototype, random_list, read_targets, widen
from backtalk.data.vocabulary import EOS, SPECIALS, UNK
from backtalk.errors import InputError
from backtalk.models.lstm.decode import Sampling
from backtalk.models.lstm.model import LocalModel
from backtalk.protocols import TextModel, WeightsModel
from backtalk.types import Target, Turn

NAMES = ("mal", "mal-wide", "normal", "random")
FREQUENT = 1000  # words that random targets are made of
LIST_SIZE = 48  # targets of a list that are tried by default, 12 of each category: a minute of two cores
GENERIC_BELOW = 0.5
"""If greedy decoding gives fewer distinct replies than this share of the list, replies are sampled."""


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
    if name == "mal":
        # Sentences with unknown words would only be skipped: they come last, and only if all are asked for.
        prototypes = load_mal()
        known = [target for target in prototypes if knows(target.text)]
        return one_per_prototype(known, count, seed) if count <= len(known) else prototypes[:count]
    if name == "mal-wide":
        return widen(load_mal(), final_period=knows("."), limit=limit or None)
    if not isinstance(model, LocalModel):
        raise InputError(f"the list {name!r} needs a model of ours; give a file of targets instead")
    if name == "random":
        words = [word for word in model.vocabulary.entries[:FREQUENT] if any(map(str.isalpha, word))]
        return random_list(words, count, seed=seed)
    texts = [text for text, _ in reference_pairs("")]
    greedy = greedy_replies(model, texts)
    is_generic = len(greedy) < GENERIC_BELOW * count
    return normal_list(sampled_replies(model, texts, seed) if is_generic else greedy, count)


def can_say(model: WeightsModel, text: str) -> bool:
    """Whether a text has at least one word for the model, and no unknown ones."""
    return bool(model.encode_input(text)) and not model.unknown_words(text)


def greedy_replies(model: LocalModel, texts: Sequence[str]) -> list[str]:
    """The distinct greedy replies to some inputs."""
    return _distinct(model, model.greedy_ids(_inputs(model, texts)))


def sampled_replies(model: LocalModel, texts: Sequence[str], seed: int) -> list[str]:
    """The distinct replies sampled from words above T_out alone, so that a trigger is known to exist."""
    sampling = Sampling(above=float(model.card["T_out"]))
    seeds = [seed * 1_000_003 + i for i in range(len(texts))]
    return _distinct(model, model.sample_ids(_inputs(model, texts), seeds, sampling))


def _inputs(model: LocalModel, texts: Sequence[str]) -> Tensor:
    return model.encode_dialogues([(Turn("user", text),) for text in texts])


def _distinct(model: LocalModel, replies: Sequence[Sequence[int]]) -> list[str]:
    """Whole sentences of known words, each once."""
    whole = [ids for ids in replies if len(ids) > 1 and ids[-1] == EOS and UNK not in ids]
    whole = [ids for ids in whole if all(i >= len(SPECIALS) for i in ids[:-1])]
    return list(dict.fromkeys(model.decode(ids) for ids in whole))
