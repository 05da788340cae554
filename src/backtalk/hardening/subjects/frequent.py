"""An LSTM of ours against replies that it gives too often: Algorithm 2 of He & Glass 2020, or the training of
a plugin.

The lowest max-ratio on selection pairs within the bound on perplexity is kept. It is proven on held-out pairs
that neither trained nor chose, by greedy replies, which training discourages, and by beam search, which it
does not look at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from backtalk.audit.backend import Reporter
from backtalk.hardening.cost import BEST, Side
from backtalk.hardening.folder import CHECKPOINT
from backtalk.hardening.pairs import Recall
from backtalk.hardening.proof import HELD_OUT, TRAINING, Row
from backtalk.hardening.selection import Candidate
from backtalk.hardening.settings import frequent_config
from backtalk.hardening.subject import Measured, Training, diversity
from backtalk.hardening.subjects.own_model import OwnModel, perplexity_of, replies_of
from backtalk.models.device import evaluating
from backtalk.models.lstm.model import LocalModel
from backtalk.scorers.diversity import commonest
from backtalk.specs.harden import HardenSpec
from backtalk.stats import Rate
from backtalk.training.course import CourseConfig, run_course, steps_of
from backtalk.training.frequent import FrequentConfig, check_window, discourage_frequent
from backtalk.training.updates import Descent


class FrequentReplies(OwnModel):
    kind, cases = "frequent", "pairs"
    measures = "selection inputs get the most frequent reply"
    config: CourseConfig

    def __init__(self, spec: HardenSpec, recall: Recall) -> None:
        super().__init__(spec, recall, apart=True)
        assert self.pairs.selection is not None
        self.choosing = self.pairs.selection
        self.steps = steps_of(self.config, self.pair_counts[0])
        """Mini-batches of an iteration."""
        if isinstance(self.config, FrequentConfig):
            check_window(self.config, self.pair_counts[0])

    @property
    def sizes(self) -> list[int]:
        return [self.pair_counts[0], len(self.choosing.replies), self.pair_counts[1]]

    def _read(self) -> None:
        self.config = frequent_config(self.spec, self.parent.max_output)

    def described(self) -> dict[str, Any]:
        return {**super().described(), "against": "frequent", "steps": self.steps}

    def notes(self) -> Iterator[str]:
        window = ""
        if isinstance(self.config, FrequentConfig):
            window = f"; the first {self.config.window:,} only fill the window"
        yield f"An iteration is {self.steps:,} mini-batches of {self.config.batch}{window}."

    def estimate(self) -> float:
        return self.spec.iterations * self.steps * self._step_seconds()

    def _step_seconds(self) -> float:
        """About what a step takes: two and a half times a positive update, tried on a copy."""
        descent = Descent(deepcopy(self.parent.network), self.config, self.parent.device)
        pairs, size = self.pairs.positive, self.config.batch
        took = []
        for _ in range(3):  # the first one sets libraries up
            before = time.monotonic()
            descent.positive(pairs.inputs[:size], pairs.replies[:size], seed=0)
            took.append(time.monotonic() - before)
        return 2.5 * min(took)

    def begin(self, facts: dict[str, Any], tell: Reporter) -> Training:
        model, pairs, config = self.copy(), self.pairs.positive, self.config
        checkpoint, device = self.out / CHECKPOINT, model.device
        if isinstance(config, FrequentConfig):
            reports = discourage_frequent(model.network, pairs, config, checkpoint, facts, device)
        else:
            course = self.spec.method.training(model.network, config, device)
            reports = run_course(course, pairs, config, checkpoint, facts)

        def measure(first: Candidate | None) -> Measured:
            with evaluating(model.network, "highest"):
                said = replies_of(model, self.choosing.inputs)
                return Measured(commonest(said), perplexity_of(model, self.choosing), *diversity(said))

        return Training(model.network, reports, measure)

    def more_rows(self, before: Side, after: Side) -> list[Row]:
        """Of all replies, how many are the most frequent one."""
        n = len(self.pairs.measured.replies)
        seen = [self._commonest_in_training(one, n) for one in (self.parent, self.load_hardened())]
        beams = [commonest([row[0] for row in side.lists]) for side in (before, after)]
        found = [
            (HELD_OUT, "greedy replies", n, True, [commonest(side.said) for side in (before, after)]),
            (TRAINING, "greedy replies", min(n, len(self.pairs.positive.replies)), True, seen),
            (HELD_OUT, "beam search", len(before.lists), False, beams),
        ]
        return [
            Row(
                part,
                search,
                f"{n:,} inputs" + (f", width {BEST}" if search == "beam search" else ""),
                "most frequent reply",
                trained_with,
                Rate.of(counts[0], n),
                Rate.of(counts[1], n),
            )
            for part, search, n, trained_with, counts in found
        ]

    def _commonest_in_training(self, model: LocalModel, n: int) -> int:
        with evaluating(model.network, "highest"):
            return commonest(replies_of(model, self.pairs.positive.inputs[:n]))
