"""Several models with the same tokens as one: a search on it finds triggers that work on all of them.

Log-probabilities and gradients are means over the models. For a chance criterion, whose loss is a sum of
log-probabilities, that is the mean of the models' losses; the other criteria look at the mean
log-probabilities. Replies and the language model are the first model's.
"""

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
        """The floor is ignored: what is too low on one model may be high enough on average."""
        found = [m.score_substitutions(inputs, position, candidates, own) for m, own in self._goals(targets)]
        return mean_scores(found)

    def gradient(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        positions: Sequence[int] | None = None,
        branches: float = 1.0,
    ) -> Tensor:
        every = self._goals(targets)
        parts = [one.gradient(inputs, own, weights, positions, branches) for one, own in every]
        return torch.stack([self._fitted(part) for part in parts]).mean(0)

    def _goals(self, targets: Tensor) -> list[tuple[WeightsModel, Tensor]]:
        """Each model with the targets as it ends them: the same tensor where nothing changes, since models
        keep facts about it."""
        end = self.ends[0]
        goals = [targets if own == end else torch.where(targets == end, own, targets) for own in self.ends]
        return list(zip(self.models, goals, strict=True))

    def _fitted(self, part: Tensor) -> Tensor:
        """(..., words), as wide as the first model's embedding: others may be padded differently."""
        return F.pad(part, (0, self.vocabulary_size - part.shape[-1]))


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
    """Whether both models have the same vocabulary."""
    if isinstance(first, TransformerModel) and isinstance(other, TransformerModel):
        return bool(first.tokenizer.get_vocab() == other.tokenizer.get_vocab())
    if isinstance(first, LocalModel) and isinstance(other, LocalModel):
        return (first.vocabulary, first.recipe) == (other.vocabulary, other.recipe)
    return False
