"""Several models with the same tokens as one: a search on it finds triggers that work on all of them.

Log-probabilities and gradients are means over the models. For a chance criterion, whose loss is a sum of
log-probabilities, that is the mean of the models' losses; the other criteria look at the mean
log-probabilities. Replies and the language model are the first model's.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.models.lstm.model import LocalModel
from backtalk.models.transformer.model import TransformerModel
from backtalk.protocols import Drafting, Retokenises, TextModel, WeightsModel
from backtalk.types import Access, Floor, TokenScores


class Together:
    """A WeightsModel made of several."""

    def __init__(self, models: Sequence[WeightsModel]) -> None:
        first = models[0]
        self.models, self.access = models, Access.WEIGHTS
        self.name, self.fingerprint = first.name, first.fingerprint
        self.pad, self.unknown_id = first.pad, first.unknown_id
        self.vocabulary_size, self.language_model = first.vocabulary_size, first.language_model
        self.reply, self.sample, self.log_prob = first.reply, first.sample, first.log_prob
        self.encode_input, self.encode_target = first.encode_input, first.encode_target
        self.decode, self.unknown_words = first.decode, first.unknown_words
        self.ends = [one.encode_target("")[-1] for one in models]  # the end-of-turn token of each

    def draft(self) -> WeightsModel:
        return together([one.draft() if isinstance(one, Drafting) else one for one in self.models])

    def searchable(self) -> Tensor:
        return torch.stack([self._fitted(one.searchable()) for one in self.models]).all(0)

    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        return mean_scores([one.score(inputs, own) for one, own in self._goals(targets)])

    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        """The floor is used if every token counts: what the models before found, and that log-probabilities
        are at most 0, bounds the sum of the next one."""
        found: list[TokenScores] = []
        left: Tensor | None = None
        if floor is not None and floor.enough == math.inf and not floor.spare_argmax:
            left = floor.total * len(self.models)
        for one, own in self._goals(targets):
            least = None if left is None else Floor(left)
            found.append(one.score_substitutions(inputs, position, candidates, own, least))
            left = None if left is None else left - found[-1].log_probs.sum(-1)
        return mean_scores(found)

    def gradient(
        self, inputs: Tensor, targets: Tensor, weights: Tensor, positions: Sequence[int] | None = None
    ) -> Tensor:
        parts = (one.gradient(inputs, own, weights, positions) for one, own in self._goals(targets))
        total = self._fitted(next(parts))
        for part in parts:
            total = total + self._fitted(part)
        return total / len(self.models)

    def _goals(self, targets: Tensor) -> list[tuple[WeightsModel, Tensor]]:
        """Each model with the targets as it ends them. Models keep facts about the tensor of the targets, so
        it stays the same object where nothing changes."""
        first = self.ends[0]
        return [
            (one, targets if end == first else torch.where(targets == first, end, targets))
            for one, end in zip(self.models, self.ends, strict=True)
        ]

    def _fitted(self, part: Tensor) -> Tensor:
        """(..., words): as wide as the first model's embedding; tables may be padded to other sizes."""
        more = self.vocabulary_size - part.shape[-1]
        return F.pad(part, (0, more)) if more else part


class TokensTogether(Together):
    """The same for models of word pieces. A trigger has to survive in the prompt of each."""

    def survives(self, triggers: Tensor) -> Tensor:
        kept = [one.survives(triggers) for one in self.models if isinstance(one, Retokenises)]
        return torch.stack(kept).all(0)

    @property
    def tokens_read(self) -> int:
        return sum(one.tokens_read for one in self.models if isinstance(one, Retokenises))


def together(models: Sequence[WeightsModel]) -> WeightsModel:
    """One model as it is, or several as one."""
    if len(models) == 1:
        return models[0]
    return TokensTogether(models) if isinstance(models[0], Retokenises) else Together(models)


def mean_scores(found: Sequence[TokenScores]) -> TokenScores:
    log_probs, is_argmax = zip(*found, strict=True)
    return TokenScores(torch.stack(log_probs).mean(0), torch.stack(is_argmax).all(0))


def same_tokens(first: TextModel, other: TextModel) -> bool:
    """Whether both read the same text as the same ids, as far as their vocabularies say."""
    if isinstance(first, TransformerModel) and isinstance(other, TransformerModel):
        return bool(first.tokenizer.get_vocab() == other.tokenizer.get_vocab())
    if isinstance(first, LocalModel) and isinstance(other, LocalModel):
        return (first.vocabulary, first.recipe) == (other.vocabulary, other.recipe)
    return False
