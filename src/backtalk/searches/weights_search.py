"""Base classes of searches on a model's weights.

A search is a frozen dataclass. Its fields are its settings: flags, YAML keys, help and the identity of a run
follow from their types. `search_rows` takes a batch of rows and returns one trigger for each.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, TypeVar

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.hits import Criterion
from backtalk.protocols import Retokenises, WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.objective import Objective, Targets, objective_for
from backtalk.searches.trial import Trial
from backtalk.searches.watch import Watch
from backtalk.specs import Range, Top, Tries, Weight
from backtalk.types import Access, Found, Thresholds

WORDS, TOKENS = 8, 15  # the default length of a trigger, for models of words and of word pieces

Own = TypeVar("Own", bound="WeightsSearch")


@dataclass(frozen=True)
class WeightsSearch(ABC):
    """Base class of searches that use a model's weights."""

    backend: ClassVar[str] = "weights"
    needs: ClassVar[Access] = Access.WEIGHTS
    cost: ClassVar[int] = 1
    """About how many substitutions one candidate costs, for block sizes and time estimates."""

    length: Annotated[int, Range(0, 1000)] = 0
    """Words of a trigger, or tokens of a Hugging Face model (n); 0 takes 8 words or 15 tokens."""
    restarts: Tries = field(default=2, kw_only=True)
    """Searches from different starts for each target (R)."""
    lambda_in: Weight = field(default=1.0, kw_only=True)
    """Weight of the language-model term for io-hits."""
    language_model: str = field(default="", kw_only=True)
    """Hugging Face model with the same tokenizer as the audited one that scores how likely a trigger is."""

    def fitted(self: Own, model: WeightsModel) -> Own:
        """With defaults that depend on the model filled in."""
        return replace(self, length=self.length or (TOKENS if isinstance(model, Retokenises) else WORDS))

    @property
    @abstractmethod
    def most_candidates(self) -> int:
        """The most candidates that one row may try."""

    def run(
        self,
        model: WeightsModel,
        objective: Objective,
        targets: Targets,
        seeds: Sequence[int],
        watch: Watch | None = None,
    ) -> list[Found]:
        """One trigger for each row."""
        allowed, counter = self.allowed(model), model if isinstance(model, Retokenises) else None
        watch = watch or Watch()
        watch.device = allowed.device
        goals = pad_rows(targets, model.pad).to(allowed.device)
        trial = Trial(model, objective, goals, seeds, allowed, watch=watch)
        if counter is None:
            return self.search_rows(trial)
        earlier = int(watch.resumed["tokens_read"]) if watch.resumed else 0
        before = counter.tokens_read - earlier
        watch.more = lambda: {"tokens_read": torch.tensor(counter.tokens_read - before)}
        found = self.search_rows(trial)
        share = {"forward_tokens": (counter.tokens_read - before) / len(seeds)}
        return [one._replace(scores={**one.scores, **share}) for one in found]

    @abstractmethod
    def search_rows(self, trial: Trial) -> list[Found]:
        """The trigger of each row; its randomness depends on its seed alone. `trial.watch` is called after
        every step; once it says so, the search ends with what it has, and rows that it did not reach have no
        ids."""

    def allowed(self, model: WeightsModel) -> Tensor:
        """(vocabulary,), bool: the words that a trigger may contain."""
        return model.searchable()

    def objective(self, criterion: Criterion, thresholds: Thresholds) -> Objective:
        """The objective of a search that aims at the criterion."""
        return objective_for(criterion, thresholds, self.lambda_in)

    @property
    def at_once(self) -> int:
        """How many candidates of a row are scored together."""
        return 25

    def draft_of(self, model: WeightsModel) -> WeightsModel | None:
        """The coarser copy of the model that ranks candidates, if the search has one."""
        return None


@dataclass(frozen=True)
class WordSearch(WeightsSearch):
    """A search that tries at most `length` x `top` x `sweeps` words for each row, by `search_rows`."""

    top: Top = 25
    """Candidates at each position (G)."""
    sweeps: Tries = 6
    """The most passes over the positions (T)."""
    with_unknown: bool = field(default=False, kw_only=True)
    """Allow the unknown word in triggers, as in the papers."""
    max_ppl: Annotated[float, Range(0, 10**9)] = field(default=0.0, kw_only=True)
    """For io-hits: the highest perplexity of a trigger, instead of the reference pairs' (T_in). A trigger
    within the bound is never replaced by one beyond it. 0 sets none."""
    as_published: bool = field(default=False, kw_only=True)
    """Use the paper's choices: eq. 6 for avg-hits too, no language-model gradient once an input is likely."""
    all_words: bool = field(default=False, kw_only=True)
    """Every word of a target counts, however likely it is: eq. 7 of He & Glass 2020."""

    def __post_init__(self) -> None:
        if self.as_published and self.all_words:
            raise InputError("--as-published and --all-words are two papers' ways; leave one out")
        if 0 < self.max_ppl <= 1:
            raise InputError("--max-ppl should be above 1: no text has a lower perplexity")

    @property
    def most_candidates(self) -> int:
        return self.length * self.top * self.sweeps

    @property
    def at_once(self) -> int:
        return self.top

    def allowed(self, model: WeightsModel) -> Tensor:
        words = model.searchable().clone()
        if self.with_unknown and model.unknown_id is not None:
            words[model.unknown_id] = True
        return words

    def objective(self, criterion: Criterion, thresholds: Thresholds) -> Objective:
        own = objective_for(criterion, thresholds, self.lambda_in, self.as_published, self.all_words)
        # The bound does not depend on k.
        return replace(own, enough_in=thresholds.into, strict=True) if self.max_ppl else own
