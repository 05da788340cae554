"""The chance that a sampled reply is one of the listed sentences: r(x) = sum P(y | x), exact.

Sentences end in the end-of-turn token, so they are disjoint events. Sentences of the same tokens count once,
and all end tokens of a model are summed. A tokenizer of subwords may write a text in other tokens too, so for
such a model r is a lower bound of the chance of the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.models.prefix_tree import PrefixTree, Served
from backtalk.protocols import TextModel
from backtalk.risk.inputs import Batch
from backtalk.risk.language import Array
from backtalk.types import Dialogue, Target
from backtalk.wording import count


class Read(NamedTuple):
    """What a batch of inputs makes the model say."""

    chance: Array  # (draws, parts): of a bad reply, by category
    by_target: Array | None = None  # (draws, targets); None where no sentences are listed
    said: Sequence[str] | None = None  # the worst reply to each input, where replies are rated


class Counted(Protocol):
    """What counts as a bad reply, and its chance after an input."""

    @property
    def described(self) -> str: ...

    @property
    def parts(self) -> Sequence[str]:
        """The categories of bad replies."""

    @property
    def targets(self) -> Sequence[Target]: ...

    @property
    def notes(self) -> Sequence[str]:
        """What to know about the count."""

    @property
    def work(self) -> int:
        """How many times the model is read for an input, about."""

    def read(self, batch: Batch) -> Read: ...


@runtime_checkable
class ReadsTrees(Protocol):
    """A model that reads the replies of a prefix tree at once."""

    @property
    def name(self) -> str: ...

    def unknown_words(self, text: str) -> list[str]: ...

    def reply_sequences(self, text: str) -> Sequence[Sequence[int]]:
        """The tokens of a reply, once with each token that may end it."""

    @property
    def longest_reply(self) -> int:
        """The most tokens that the model writes, the end included."""

    def tree_log_probs(self, inputs: Sequence[Dialogue] | Tensor, tree: PrefixTree, served: Served) -> Tensor:
        """(inputs, sequences), float64; the inputs are dialogues, or the model's own token ids."""


@dataclass
class Listed:
    """The listed sentences that the model can say."""

    model: ReadsTrees
    targets: Sequence[Target]
    tree: PrefixTree
    owner: NDArray[np.int64]  # of each sequence of the tree, the place of its target
    served: Served
    notes: Sequence[str]

    @property
    def described(self) -> str:
        return f"{count(len(self.targets), 'listed sentence')}, word for word"

    @property
    def parts(self) -> Sequence[str]:
        return list(dict.fromkeys(target.category for target in self.targets))

    @property
    def work(self) -> int:
        return self.tree.nodes

    def read(self, batch: Batch) -> Read:
        own = batch.ids is not None and isinstance(self.model, LocalModel)
        inputs = batch.ids if own and batch.ids is not None else batch.dialogues
        found = self.model.tree_log_probs(inputs, self.tree, self.served).exp().cpu().numpy()
        if not np.isfinite(found).all():
            raise InputError(f"{self.model.name} gave chances that are not finite numbers; check its weights")
        by_target = np.zeros((len(found), len(self.targets)))
        np.add.at(by_target.T, self.owner, found.T)
        numbers = {name: number for number, name in enumerate(self.parts)}
        column = np.array([numbers[target.category] for target in self.targets])
        chance = np.stack([by_target[:, column == part].sum(1) for part in range(len(numbers))], axis=1)
        return Read(chance, by_target)


def listed(model: TextModel, targets: Sequence[Target], served: Served) -> Listed:
    """The sentences that the model can say, if it shows their log-probabilities."""
    if not isinstance(model, ReadsTrees):
        why = f"{model.name} shows no chances of replies"
        raise InputError(f"{why}; count what it says with --hit toxic-0.5 or --hit greedy")
    found = distinct(model, targets)
    if not found.targets:
        raise InputError(f"{model.name} can say none of the sentences: {'; '.join(found.notes)}")
    tree = PrefixTree.of([one for own in found.sequences for one in own])
    owner = np.repeat(np.arange(len(found.targets)), [len(own) for own in found.sequences])
    return Listed(model, found.targets, tree, owner, served, found.notes)


class Distinct(NamedTuple):
    targets: list[Target]
    sequences: list[Sequence[Sequence[int]]]
    notes: list[str]


def distinct(model: ReadsTrees, targets: Sequence[Target]) -> Distinct:
    """The targets that the model can say, each once, and how many are left out and why."""
    found, seen = Distinct([], [], []), set[tuple[int, ...]]()
    unknown, long, twice = 0, 0, 0
    for target in targets:
        sequences = [tuple(one) for one in model.reply_sequences(target.text)]
        if model.unknown_words(target.text) or len(sequences[0]) < 2:
            unknown += 1
        elif len(sequences[0]) > model.longest_reply:
            long += 1
        elif seen & set(sequences):
            twice += 1
        else:
            seen |= set(sequences)
            found.targets.append(target)
            found.sequences.append(sequences)
    whys = {
        "with words that the model does not know": unknown,
        "longer than a reply": long,
        "that read like another": twice,
    }
    found.notes.extend(f"{count(n, 'sentence')} {why} left out" for why, n in whys.items() if n)
    return found
