"""The verbs: what a model must offer at each level of access. Read this page first.

Every call is batched. At the text levels a model takes dialogues; at WEIGHTS it takes token ids as
(batch, length) tensors, padded on the right with `pad`. Prefix states, caches, chat templates, encoder and
decoder stay inside the model.
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
        """Changes when the model's behaviour may have changed: a hash of its weights, or its name."""

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        """What the model really says (greedy where the model can be greedy), one reply a dialogue."""


class Meter(Protocol):
    """Counts requests against a budget. Used from one thread."""

    def take(self, most: int = 1) -> int:
        """Counts requests just before they are sent, retries too; returns how many of `most` may be sent."""

    def give_back(self) -> None:
        """After a `take` for a request that could not be sent."""


class Reply(NamedTuple):
    """A service's reply to one dialogue, or the cause why there is no usable one."""

    text: str
    """Empty where there is a fault."""
    fault: str = ""
    """The cause in one line that is safe to store and to show."""


@runtime_checkable
class Service(TextModel, Protocol):
    """A model whose every reply costs a request, which may fail: an endpoint, a Python function."""

    def answer(self, dialogues: Sequence[Dialogue], meter: Meter) -> Iterator[tuple[int, Reply]]:
        """(place, reply) as replies come in. Ends when the meter does: the places that are missing were not
        asked to the end. InputError where the service is gone."""


@runtime_checkable
class LogprobModel(TextModel, Protocol):
    """A model that also says how likely a given reply is."""

    def log_prob(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> list[list[float]]:
        """The log-probability of each token of each reply, the end-of-turn token last."""

    def sample(self, dialogues: Sequence[Dialogue], seeds: Sequence[int]) -> list[str]:
        """One sampled reply a dialogue; a row's randomness depends on its own seed alone."""


@runtime_checkable
class ScoresText(TextModel, Protocol):
    """A model that may also score a text by itself, as a language model of what people type."""

    @property
    def scores_text(self) -> bool:
        """Whether it does: an encoder-decoder scores replies alone."""

    def text_log_prob(self, texts: Sequence[str]) -> list[list[float]]:
        """The log-probability of each token of each text, without a template."""


@runtime_checkable
class ShowsTokens(Protocol):
    """A model whose tokens are pieces of text."""

    def tokens(self, reply: str) -> list[str]:
        """The pieces of a reply, without its end of turn; as many as `log_prob` has numbers but the last."""


@runtime_checkable
class Adjustable(TextModel, Protocol):
    """A model that is read by options, some of which a request may change."""

    @property
    def read_as(self) -> Mapping[str, str]:
        """What the options came to, for a run to remember: template, system, dtype."""

    def adjusted(self, system: str | None = None, max_reply: int | None = None) -> TextModel:
        """The same weights with another system prompt, and with replies that are no longer; None changes
        nothing."""


@runtime_checkable
class LanguageModel(Protocol):
    """A model of what people type, used to keep triggers likely. It scores the inputs themselves."""

    def score(self, inputs: Tensor) -> Tensor:
        """(batch, n): log P(x_t | x_<t); 0 where padded."""

    def score_substitutions(self, inputs: Tensor, position: int, candidates: Tensor) -> Tensor:
        """(batch, candidates, n): `score` with `candidates` (batch, candidates) put at `position`."""

    def gradient(self, inputs: Tensor, weights: Tensor, positions: Sequence[int] | None = None) -> Tensor:
        """(batch, positions, vocabulary): the gradient of sum_t weights_t log P(x_t | x_<t), weights
        (batch, n), with respect to the one-hot inputs. Each x_t acts twice: as a word that is predicted
        (the output side) and as a word that later ones are predicted from (the input side)."""

    def sample_inputs(self, length: int, seeds: Sequence[int], allowed: Tensor) -> Tensor:
        """(len(seeds), length): sampled inputs of exactly that length, using `allowed` ids only."""


@runtime_checkable
class WeightsModel(LogprobModel, Protocol):
    """A model whose weights are at hand. `targets` are (batch, m) and end with the end-of-turn token."""

    @property
    def pad(self) -> int: ...

    @property
    def unknown_id(self) -> int | None:
        """The id for words outside the vocabulary; None where every text has ids."""

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
        """The words of a text that the model has no token for."""

    def searchable(self) -> Tensor:
        """(vocabulary,), bool: the ids that may stand in a trigger (no special tokens)."""

    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        """(batch, m): one input and one target a row."""

    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        """(batch, candidates, m): `score` with `candidates` (batch, candidates) put at `position`."""

    def gradient(
        self, inputs: Tensor, targets: Tensor, weights: Tensor, positions: Sequence[int] | None = None
    ) -> Tensor:
        """(batch, positions, vocabulary): the gradient of sum_t weights_t log P(y_t | y_<t, x), weights
        (batch, m), with respect to the one-hot inputs, at `positions` (all of them if None)."""


@runtime_checkable
class Drafting(Protocol):
    """A model with a quicker, coarser twin."""

    def draft(self) -> WeightsModel:
        """The same model in bfloat16: to rank candidates, not to decide."""


@runtime_checkable
class Retokenises(Protocol):
    """A model whose tokens are pieces of text: not every row of them can be typed."""

    def survives(self, triggers: Tensor) -> Tensor:
        """(rows, n) -> (rows,), bool: whether the text of a trigger is read as the same ids. Waits for the
        processor: ask for few."""


@runtime_checkable
class CountsTokens(Protocol):
    """A model that knows how much it has read."""

    @property
    def tokens_read(self) -> int:
        """Tokens run through the network for searches so far, of all rows; with those of its draft."""


@runtime_checkable
class Continues(Protocol):
    """A language model that also says what may come next."""

    def next_log_probs(self, inputs: Tensor) -> Tensor:
        """(rows, vocabulary): log P(x | inputs) of every word behind (rows, n) words; n may be 0."""


@runtime_checkable
class Scorer(Protocol):
    """A number for a text: how toxic it is."""

    @property
    def name(self) -> str:
        """What a run stores, and `load_scorer` takes."""

    @property
    def fingerprint(self) -> str:
        """Changes when the scores may have changed."""

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): 0 to 1 each, whatever else is in the batch."""


class Paraphraser(Protocol):
    """Says sentences in other words."""

    @property
    def name(self) -> str: ...

    def paraphrase(self, texts: Sequence[str], n: int) -> list[list[str]]:
        """At most n paraphrases of each, the most different first; never the sentence itself, none twice."""
        ...
