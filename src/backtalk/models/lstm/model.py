"""An LSTM dialogue model behind the model protocol: text and ids on the outside, one network inside."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backtalk.data.tokenise import Recipe
from backtalk.data.vocabulary import EOS, PAD, UNK, Vocabulary
from backtalk.errors import InputError
from backtalk.models.lstm.decode import Probabilities, beam, greedy, sample, trim
from backtalk.models.lstm.language_model import LSTMLanguageModel
from backtalk.models.lstm.scoring import TargetScorer
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.models.lstm.tree import tree_log_probs
from backtalk.models.prefix_tree import PrefixTree, Served
from backtalk.types import Access, Dialogue

BATCH = 256  # dialogues answered at once


@dataclass
class LocalModel(TargetScorer):
    """An LSTM seq2seq with its vocabulary and perhaps a language model. `TargetScorer` has its scores. It
    reads only the last utterance of a dialogue, as in the papers."""

    name: str
    network: Seq2Seq
    vocabulary: Vocabulary
    recipe: Recipe
    fingerprint: str
    language_model: LSTMLanguageModel | None = None
    card: dict[str, Any] = field(default_factory=dict)
    max_input: int = 15
    max_output: int = 20
    access: Access = Access.WEIGHTS
    pad: int = PAD
    unknown_id: int | None = UNK

    @property
    def device(self) -> torch.device:
        return self.network.output.weight.device

    @property
    def vocabulary_size(self) -> int:
        return len(self.vocabulary)

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return [self.read(ids) for ids in self.greedy_ids(self.encode_dialogues(dialogues))]

    def sample(self, dialogues: Sequence[Dialogue], seeds: Sequence[int]) -> list[str]:
        return [self.read(ids) for ids in self.sample_ids(self.encode_dialogues(dialogues), seeds)]

    def beams(self, dialogues: Sequence[Dialogue], width: int) -> list[list[tuple[str, float]]]:
        """The `width` likeliest replies a dialogue, each with its log-probability."""
        inputs = self.encode_dialogues(dialogues)
        state = self.network.start(inputs)
        found = beam(self.network, state, len(inputs), self.max_output, width, self.device)
        return [[(self.read(best.ids), best.log_prob) for best in row] for row in found]

    def log_prob(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> list[list[float]]:
        if len(dialogues) != len(replies):
            raise InputError(f"{len(dialogues)} dialogues but {len(replies)} replies; give one for each")
        result: list[list[float]] = []
        inputs = self.encode_dialogues(dialogues)
        for start in range(0, len(inputs), BATCH):
            ids = [self.encode_target(text) for text in replies[start : start + BATCH]]
            scores = self.score(inputs[start : start + BATCH], self.pad_rows(ids)).log_probs.tolist()
            result += [row[: len(own)] for row, own in zip(scores, ids, strict=True)]
        return result

    def tree_log_probs(self, inputs: Sequence[Dialogue] | Tensor, tree: PrefixTree, served: Served) -> Tensor:
        """(inputs, sequences), float64: log P of each sequence of a tree after dialogues, or rows of ids."""
        rows = inputs if isinstance(inputs, Tensor) else self.encode_dialogues(inputs)
        return tree_log_probs(self.network, rows, tree, served)

    def sample_served(self, dialogues: Sequence[Dialogue], seeds: Sequence[int], served: Served) -> list[str]:
        """Sampled replies, a seed a dialogue."""
        inputs = self.encode_dialogues(dialogues)
        return [self.read(ids) for ids in self.sample_ids(inputs, seeds, served)]

    def reply_sequences(self, text: str) -> list[list[int]]:
        return [self.encode_target(text)]

    @property
    def longest_reply(self) -> int:
        return self.max_output

    def encode_input(self, text: str) -> list[int]:
        return self.vocabulary.ids(self.recipe.words(text))

    def encode_target(self, text: str) -> list[int]:
        return [*self.vocabulary.ids(self.recipe.words(text)), EOS]

    def decode(self, ids: Sequence[int]) -> str:
        """The sentence as people write it where that reads back to the same ids, else word by word."""
        kept = [i for i in ids if i not in (PAD, EOS)]
        readable = self.read(kept)
        return readable if self.encode_input(readable) == kept else " ".join(self.vocabulary.words(kept))

    def read(self, ids: Sequence[int]) -> str:
        """The sentence as people write it."""
        return self.recipe.show(self.vocabulary.words([i for i in trim(ids) if i not in (PAD, EOS)]))

    def unknown_words(self, text: str) -> list[str]:
        return self.vocabulary.unknown(self.recipe.words(text))

    def searchable(self) -> Tensor:
        return torch.arange(len(self.vocabulary), device=self.device) > UNK

    def draft(self) -> "LocalModel":
        """The same model in bfloat16: to rank candidates quickly, not to decide."""
        lm = None if self.language_model is None else deepcopy(self.language_model).bfloat16()
        return replace(self, network=deepcopy(self.network).bfloat16(), language_model=lm)

    def greedy_ids(self, inputs: Tensor) -> list[list[int]]:
        """The greedy reply to each row of `inputs`, <eos> included where it was reached."""
        return self.sample_ids(inputs, None)

    def sample_ids(
        self, inputs: Tensor, seeds: Sequence[int] | None, sampling: Probabilities | None = None
    ) -> list[list[int]]:
        """Sampled replies, a seed a row; greedy ones without seeds."""
        network, longest, found = self.network, self.max_output, list[list[int]]()
        for start in range(0, len(inputs), BATCH):
            rows = slice(start, start + BATCH)
            state = network.start(inputs[rows])
            if seeds is None:
                written = greedy(network, state, len(inputs[rows]), longest, self.device)
            else:
                written = sample(network, state, seeds[rows], longest, self.device, sampling)
            found += map(trim, written.tolist())
        return found

    def encode_dialogues(self, dialogues: Sequence[Dialogue]) -> Tensor:
        """`encode_texts` of the last utterances."""
        if not all(dialogues):
            raise InputError("a dialogue has no turns; give at least one utterance to reply to")
        return self.encode_texts([dialogue[-1].text for dialogue in dialogues])

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """(texts, n) ids, cropped and padded; a text without a word is read as one unknown word."""
        rows = [self.encode_input(text)[: self.max_input] or [UNK] for text in texts]
        return self.pad_rows(rows, self.max_input if self.network.config.pad_as_word else 0)

    def pad_rows(self, rows: Sequence[Sequence[int]], length: int = 0) -> Tensor:
        """Rows of ids as one tensor, padded on the right to the longest or to `length`."""
        width = max([length, *map(len, rows)])
        padded = [[*row, *[PAD] * (width - len(row))] for row in rows]
        return torch.tensor(padded, dtype=torch.long, device=self.device).view(len(rows), width)
