"""What a model offers at each level of access. Read this file first.

Every call is batched. At the text levels a model takes dialogues; at WEIGHTS it takes token ids as
(batch, length) tensors, padded on the right with `pad`. KV caches, chat templates, encoder and decoder stay
inside the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from backtalk.types import Access, Dialogue, Floor, TokenScores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


@runtime_checkable
class TextModel(Protocol):
    """Anything that replies."""

    @property
    def name(self) -> str: ...

    @property
    def access(self) -> Access: ...

    @property
    def fingerprint(self) -> str:
        """A hash of the weights, or the name: differs if the model's behaviour may differ."""

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        """One reply for each dialogue, by greedy decoding where the model supports it."""


class Meter(Protocol):
    """Counts requests against a budget. Used from one thread."""

    def take(self, most: int = 1) -> int:
        """Counts requests, retries included, before they are sent; returns how many of `most` may be sent."""

    def give_back(self) -> None:
        """Undoes a `take` for a request that could not be sent."""


class Reply(NamedTuple):
    """A service's reply to one dialogue, or the reason why there is none."""

    text: str
    fault: str = ""  # one line that is safe to store and to show


@runtime_checkable
class Service(TextModel, Protocol):
    """A model whose replies are requests, which may fail: an endpoint or a Python function."""

    def answer(self, dialogues: Sequence[Dialogue], meter: Meter) -> Iterator[tuple[int, Reply]]:
        """(index, reply) as replies arrive, until all are answered or the meter is used up. Raises an
        InputError if the service is unreachable."""


@runtime_checkable
class LogprobModel(TextModel, Protocol):
    """A model that also gives the log-probability of a reply."""

    def log_prob(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> list[list[float]]:
        """The log-probability of each token of each reply, the end-of-turn token last."""

    def sample(self, dialogues: Sequence[Dialogue], seeds: Sequence[int]) -> list[str]:
        """One sampled reply for each dialogue; each depends on its own seed alone."""


@runtime_checkable
class ScoresText(TextModel, Protocol):
    """A model that may also score a text alone, as a language model."""

    @property
    def scores_text(self) -> bool:
        """False for an encoder-decoder."""

    def text_log_prob(self, texts: Sequence[str]) -> list[list[float]]:
        """The log-probability of each token of each text, without a template."""


@runtime_checkable
class ShowsTokens(Protocol):
    """A model whose tokens are pieces of text."""

    def tokens(self, reply: str) -> list[str]:
        """The pieces of a reply: one for each number of `log_prob` but the last, the end of turn."""


@runtime_checkable
class Adjustable(TextModel, Protocol):
    """A model with ModelOptions, some of which a request may change."""

    @property
    def read_as(self) -> Mapping[str, str]:
        """The options in use, which a run stores: template, system, dtype."""

    def adjusted(self, system: str | None = None, max_reply: int | None = None) -> TextModel:
        """The same weights with another system prompt or a lower limit on replies; None changes nothing."""


class LanguageModel(Protocol):
    """A language model of inputs, used to keep triggers likely."""

    def score(self, inputs: Tensor) -> Tensor:
        """(batch, n): log P(x_t | x_<t); 0 where padded."""

    def score_substitutions(self, inputs: Tensor, position: int, candidates: Tensor) -> Tensor:
        """(batch, candidates, n): `score` with `candidates` (batch, candidates) put at `position`."""

    def gradient(self, inputs: Tensor, weights: Tensor, positions: Sequence[int] | None = None) -> Tensor:
        """(batch, positions, vocabulary): the gradient of sum_t weights_t log P(x_t | x_<t), weights
        (batch, n), with respect to the one-hot inputs, both as predicted words and as context."""

    def next_log_probs(self, inputs: Tensor) -> Tensor:
        """(rows, vocabulary): log P(x | inputs) of every word after (rows, n) words; n may be 0."""

    def sample_inputs(self, length: int, seeds: Sequence[int], allowed: Tensor) -> Tensor:
        """(len(seeds), length): sampled inputs of exactly that length, using `allowed` ids only."""


@runtime_checkable
class WeightsModel(LogprobModel, Protocol):
    """A model with its weights. `targets` are (batch, m) and end with the end-of-turn token."""

    @property
    def pad(self) -> int: ...

    @property
    def unknown_id(self) -> int | None:
        """The id of unknown words; None if there are no unknown words."""

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def language_model(self) -> LanguageModel | None: ...

    def encode_input(self, text: str) -> list[int]: ...

    def encode_target(self, text: str) -> list[int]:
        """The ids of a reply with its end-of-turn token."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; `encode_input(decode(ids)) == ids` for a valid trigger."""

    def unknown_words(self, text: str) -> list[str]:
        """The words of a text that are not in the vocabulary."""

    def searchable(self) -> Tensor:
        """(vocabulary,), bool: the ids that a trigger may contain: no special tokens."""

    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        """(batch, m): one input and one target a row."""

    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        """(batch, candidates, m): `score` with `candidates` (batch, candidates) put at `position`."""

    def gradient(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        positions: Sequence[int] | None = None,
        branches: float = 1.0,
    ) -> Tensor:
        """(batch, positions, vocabulary): the gradient of sum_t weights_t log P(y_t | y_<t, x), weights
        (batch, m), with respect to the one-hot inputs, at `positions` (all of them if None). In
        networks like Llama the gradient through attention and MLP is multiplied by `branches`; other models
        ignore it."""


@runtime_checkable
class Drafting(Protocol):
    """A weights model that searches on a GPU rank with; others are ranked in full precision."""

    def draft(self) -> WeightsModel:
        """A faster, less precise copy in bfloat16, to rank candidates."""


@runtime_checkable
class Retokenises(Protocol):
    """A model of subwords, whose tokenizer may read the text of some ids as other ids."""

    def survives(self, triggers: Tensor) -> Tensor:
        """(rows, n) -> (rows,), bool: whether the text of a trigger is read as the same ids. Slow: runs on
        the CPU."""

    @property
    def tokens_read(self) -> int:
        """Tokens of all rows that went through the network or its draft."""


class Scorer(Protocol):
    """Rates how toxic a text is."""

    @property
    def name(self) -> str:
        """The name for `load_scorer`."""

    @property
    def fingerprint(self) -> str:
        """Differs if the scores may differ."""

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): 0 to 1 each, independent of the rest of the batch."""


@runtime_checkable
class ContextScorer(Scorer, Protocol):
    """A scorer that can also rate a reply after what was said before it."""

    def score_replies(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> NDArray[np.float32]:
        """(replies,): 0 to 1 each."""
