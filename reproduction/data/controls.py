"""The control lists of He & Glass 2019, section 5.2.

normal: replies that a model gives anyway, so a good search finds them. random: frequent words in random
order, which a good model never says. Both depend on the model, and are the same for the same seed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from backtalk.data.corpora import reference_pairs
from backtalk.data.vocabulary import EOS, SPECIALS, UNK
from backtalk.errors import InputError
from backtalk.models.lstm.decode import Sampling
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Target, Turn

FREQUENT = 1000  # words that random targets are made of
SHORTEST = 4  # words of a random target
GENERIC_BELOW = 0.5
"""If greedy decoding gives fewer distinct replies than this share of the list, replies are sampled."""


@dataclass(frozen=True)
class Likely(Sampling):
    """Keeps the words with a larger log-probability than `above`, or the likeliest if none has."""

    above: float = -math.inf

    def probabilities(self, logits: Tensor) -> Tensor:
        logits = (logits.double() - logits.amax(1, keepdim=True)) / self.temperature
        bound = logits.log_softmax(1).amax(1, keepdim=True).clamp(max=self.above)
        return logits.masked_fill(logits.log_softmax(1) < bound, -math.inf).softmax(1)


def random_targets(model: LocalModel, count: int, seed: int) -> list[Target]:
    words = [word for word in model.vocabulary.entries[:FREQUENT] if any(map(str.isalpha, word))]
    return random_list(words, count, seed=seed)


def normal_targets(model: LocalModel, count: int, seed: int) -> list[Target]:
    """Replies to the shipped test inputs."""
    texts = [text for text, _ in reference_pairs("")]
    greedy = greedy_replies(model, texts)
    is_generic = len(greedy) < GENERIC_BELOW * count
    return normal_list(sampled_replies(model, texts, seed) if is_generic else greedy, count)


def random_list(words: Sequence[str], count: int = 500, max_length: int = 8, seed: int = 0) -> list[Target]:
    """Distinct sequences of words drawn uniformly from `words` (the paper: the 1,000 most frequent).

    The paper says "at most 8" words; we draw lengths uniformly from 4 to `max_length`, because fewer
    frequent words may be a sentence by chance ("hours now man"), and a hit then says nothing (docs/notes).
    """
    words = list(dict.fromkeys(words))
    shortest = min(SHORTEST, max_length)
    possible = sum(len(words) ** length for length in range(max(shortest, 1), max_length + 1))
    if possible < count:
        raise InputError(f"{len(words)} words make only {possible} random targets, not {count}")
    generator = np.random.Generator(np.random.PCG64(seed))
    texts: dict[str, None] = {}
    while len(texts) < count:
        length = int(generator.integers(shortest, max_length + 1))
        texts[" ".join(words[index] for index in generator.integers(len(words), size=length))] = None
    return _numbered(texts, "random")


def normal_list(replies: Sequence[str], count: int = 500) -> list[Target]:
    """The first `count` distinct replies (fewer if there are no more), in order of first appearance."""
    texts = dict.fromkeys(" ".join(reply.split()) for reply in replies)
    texts.pop("", None)
    return _numbered(list(texts)[:count], "normal")


def _numbered(texts: Iterable[str], category: str) -> list[Target]:
    names = ((f"{category}-{number:03d}", text) for number, text in enumerate(texts, start=1))
    return [Target(name, text, category, severity=1, prototype=name) for name, text in names]


def greedy_replies(model: LocalModel, texts: Sequence[str]) -> list[str]:
    """The distinct greedy replies to some inputs."""
    return _distinct(model, model.greedy_ids(_inputs(model, texts)))


def sampled_replies(model: LocalModel, texts: Sequence[str], seed: int) -> list[str]:
    """The distinct replies sampled from words above T_out alone, so that a trigger is known to exist."""
    sampling = Likely(above=float(model.card["T_out"]))
    seeds = [seed * 1_000_003 + i for i in range(len(texts))]
    return _distinct(model, model.sample_ids(_inputs(model, texts), seeds, sampling))


def _inputs(model: LocalModel, texts: Sequence[str]) -> Tensor:
    return model.encode_dialogues([(Turn("user", text),) for text in texts])


def _distinct(model: LocalModel, replies: Sequence[Sequence[int]]) -> list[str]:
    """Whole sentences of known words, each once."""
    whole = [ids for ids in replies if len(ids) > 1 and ids[-1] == EOS and UNK not in ids]
    whole = [ids for ids in whole if all(i >= len(SPECIALS) for i in ids[:-1])]
    return list(dict.fromkeys(model.decode(ids) for ids in whole))
