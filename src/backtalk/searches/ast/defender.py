"""The model under test: it goes on with a conversation, and says how likely the adversary's turns are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.sampling import SamplingConfig
from backtalk.models.transformer.scoring import Row
from backtalk.searches.ast.conversation import Conversation, Reading, reading_of

MOST_SCORED = 64
"""Tokens of a turn that its perplexity is taken over."""
CHECKED = 8
"""Rows that are read with and without a mask."""
NEAR = 0.1
"""How far apart the log-probabilities of both may be, on average: rounding makes far less of it."""


@dataclass
class Defender:
    """A frozen model."""

    model: TransformerModel
    manner: SamplingConfig = field(default_factory=SamplingConfig)
    context: int = 1024
    """The most tokens of a conversation with its next turn; what is older is cut."""
    reading: Reading = field(init=False)
    masked: bool | None = field(default=None, init=False)
    """Whether it is told where padding stands when it rates turns; None before the first."""

    def __post_init__(self) -> None:
        self.reading = reading_of(self.model)
        self.model.fuse_layers()

    def answer(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        """One turn for each conversation, which ends with the adversary's turn."""
        self.reading.meet(conversations)
        room = room_of(self.model, self.context, self.manner.most)
        before = [self.reading.cut(self.reading.before_defender(one), room) for one in conversations]
        written = self.model.continued(before, seeds, self.manner)
        return [self.reading.said(*both) for both in zip(before, written, strict=True)]

    def log_ppl(self, conversations: Sequence[Conversation], texts: Sequence[str]) -> list[float]:
        """logPPL(a | s) of the adversary's turns. A turn of no tokens is as unlikely as a random token."""
        found = self.token_log_probs(conversations, texts)
        nothing = math.log(self.model.footprint.vocabulary)
        return [-sum(row) / len(row) if row else nothing for row in found]

    def token_log_probs(
        self, conversations: Sequence[Conversation], texts: Sequence[str]
    ) -> list[list[float]]:
        """log P of each token of the adversary's turns, given the conversation before it."""
        room = room_of(self.model, self.context, MOST_SCORED)
        rows = []
        for conversation, text in zip(conversations, texts, strict=True):
            before, turn = self.reading.before_and_turn(conversation, text)
            rows.append(Row(self.reading.cut(before, room), turn[:MOST_SCORED]))
        scored = [row for row in rows if row.reply]
        if self.masked is None and scored:
            self.masked = self._needs_mask(scored[:CHECKED])
        found = iter(self.model.score_rows(scored, self.masked is not False))
        return [next(found) if row.reply else [] for row in rows]

    def _needs_mask(self, rows: list[Row]) -> bool:
        """Whether without a mask, which is quicker on a GPU, the first rows have other numbers."""
        if self.model.device.type == "cpu":
            return True
        both = [list(chain(*self.model.score_rows(rows, masked))) for masked in (True, False)]
        gaps = [abs(a - b) for a, b in zip(*both, strict=True)]
        return not sum(gaps) / len(gaps) <= NEAR


def room_of(model: TransformerModel, context: int, new: int) -> int:
    """Tokens of a conversation that can be read, where as many new ones follow."""
    whole = context if model.context is None else min(context, model.context)
    return max(whole - new, 1)
