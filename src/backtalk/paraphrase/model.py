"""Paraphrases by a trained model: a seq2seq of ours that was trained on pairs of the same meaning, in both
directions.

Diverse beam search writes many candidates. Kept are those that end, have no unknown word, name the same
persons, and of which each word is likely given the source, as each word of the source is given the candidate.
This drops most candidates, and nearly all that mean something else.
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

WIDTH, GROUPS = 8, 4  # beams of a group, and groups
PENALTY = 1.0  # in logits: a word of an earlier group must be 2.7 times as likely to be repeated in its place
LEAST = 0.07  # least probability of each word, of the paraphrase given the source and the reverse
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
    """The persons that a sentence names: first, second or third, singular or plural."""
    return frozenset(_PERSON_OF[word] for word in words if word in _PERSON_OF)


@dataclass(frozen=True)
class ModelParaphraser:
    """Texts with unknown words get no paraphrases."""

    name: str
    model: LocalModel
    least: float = LEAST

    def paraphrase(self, texts: Sequence[str], n: int) -> list[list[str]]:
        """At most n of each, the most different first; never the sentence itself, and none twice."""
        words = self.model.recipe.words
        ids = [self.model.encode_input(text) for text in texts]
        read = [i for i, own in enumerate(ids) if 0 < len(own) <= self.model.max_input and UNK not in own]
        found: list[list[str]] = [[] for _ in texts]
        for start in range(0, len(read), BATCH):
            part = read[start : start + BATCH]
            for i, kept in zip(part, self._kept([texts[i] for i in part]), strict=True):
                found[i] = most_different(texts[i], kept, n, lambda a, b: edit_distance(words(a), words(b)))
        return found

    def _kept(self, texts: Sequence[str]) -> list[list[str]]:
        """The candidates of each text that pass the checks."""
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


def load_paraphraser(folder: str, device: str) -> ModelParaphraser:
    if not (Path(folder) / "config.json").is_file():
        raise InputError(
            f"--paraphraser {folder} is no model folder; use rules, or `backtalk train` one on paraphrases"
        )
    model = load_folder(folder, device)
    return ModelParaphraser(f"model {model.fingerprint[:12]}", model)
