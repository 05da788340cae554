"""Paraphrases by a trained model: a seq2seq of ours that was trained on pairs which say the same.

Diverse beam search writes many; kept are those that end, hold no unknown word, speak of the same persons, and
from which the model finds its way back: it was trained in both directions, so each word must be likely there
and back. That drops most of what the beams write, and nearly all that means something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backtalk.data.vocabulary import EOS, UNK
from backtalk.errors import InputError
from backtalk.models.folder import load_folder
from backtalk.models.lstm.decode import diverse_beam
from backtalk.models.lstm.model import BATCH, LocalModel
from backtalk.paraphrase.rules import edit_distance, most_different
from backtalk.types import Turn

WIDTH = 8
"""Beams of a group."""
GROUPS = 4
PENALTY = 1.0
"""In logits: what an earlier group wrote at a place must be 2.7 times as likely to be written again."""
LEAST = 0.07
"""The least probability of each word, of the paraphrase given the source and of the source given it."""

_PERSONS = (
    "i me my mine myself",
    "you your yours yourself yourselves u ur",
    "he him his himself",
    "she her hers herself",
    "we us our ours ourselves",
    "they them their theirs themselves",
)
_PERSON_OF = {word: person for person, words in enumerate(_PERSONS) for word in words.split()}


def persons(words: Iterable[str]) -> frozenset[int]:
    """Whom a sentence speaks of: first, second or third person, one or many."""
    return frozenset(_PERSON_OF[word] for word in words if word in _PERSON_OF)


@dataclass(frozen=True)
class ModelParaphraser:
    """Takes texts with known words alone; to others it has nothing to say."""

    name: str
    model: LocalModel
    least: float = LEAST

    def paraphrase(self, texts: Sequence[str], n: int) -> list[list[str]]:
        """At most n of each, the most different first; never the sentence itself, and none twice."""
        found: list[list[str]] = [[] for _ in texts]
        read = [i for i, text in enumerate(texts) if self._can_read(text)]
        for start in range(0, len(read), BATCH):
            part = read[start : start + BATCH]
            written = self._kept([texts[i] for i in part])
            for i, candidates in zip(part, written, strict=True):
                found[i] = self._chosen(texts[i], candidates, n)
        return found

    def _can_read(self, text: str) -> bool:
        ids = self.model.encode_input(text)
        return 0 < len(ids) <= self.model.max_input and UNK not in ids

    def _kept(self, texts: Sequence[str]) -> list[list[str]]:
        """For each text what the beams wrote and the checks let through."""
        model = self.model
        inputs = model.encode_dialogues([(Turn("user", text),) for text in texts])
        state = model.network.start(inputs)
        rows = diverse_beam(
            model.network, state, len(texts), model.max_output, WIDTH, GROUPS, PENALTY, model.device
        )
        pairs: list[tuple[int, str]] = []
        for row, (text, groups) in enumerate(zip(texts, rows, strict=True)):
            source = tuple(model.recipe.words(text))
            seen = {source, ()}
            for ids in (ids for group in groups for ids in group):
                words = tuple(model.vocabulary.words(ids[:-1]))
                ended = ids[-1] == EOS and UNK not in ids
                if ended and words not in seen and persons(words) == persons(source):
                    seen.add(words)
                    pairs.append((row, model.recipe.show(words).lower()))
        sources, said = [texts[row] for row, _ in pairs], [text for _, text in pairs]
        there, back = self._least(sources, said), self._least(said, sources)
        kept: list[list[str]] = [[] for _ in texts]
        for (row, text), *least in zip(pairs, there, back, strict=True):
            if min(least) > math.log(self.least):
                kept[row].append(text)
        return kept

    def _least(self, inputs: Sequence[str], replies: Sequence[str]) -> list[float]:
        """The log-probability of the least likely word of each reply."""
        scores = self.model.log_prob([(Turn("user", text),) for text in inputs], replies)
        return [min(own) for own in scores]

    def _chosen(self, text: str, candidates: Sequence[str], n: int) -> list[str]:
        words = self.model.recipe.words
        return most_different(text, candidates, n, lambda a, b: edit_distance(words(a), words(b)))


def load_paraphraser(folder: str, device: str) -> ModelParaphraser:
    if not (Path(folder) / "config.json").is_file():
        raise InputError(
            f"--paraphraser {folder} is no model folder; use rules, or `backtalk train` one on paraphrases"
        )
    model = load_folder(folder, device)
    return ModelParaphraser(f"model {model.fingerprint[:12]}", model)
