"""An LSTM of ours against replies that it gives too often: Algorithm 2 of He & Glass 2020, or the training of
a plugin.

The lowest max-ratio on selection pairs within the bound on perplexity is kept. It is proven on held-out pairs
that neither trained nor chose, by greedy replies, which training discourages, and by beam search, which it
does not look at.
"""

from collections.abc import Iterator
from typing import Any

from backtalk.audit.backend import Reporter
from backtalk.hardening.folder import CHECKPOINT
from backtalk.hardening.subject import HELD_OUT, TRAINING, Training, make_config
from backtalk.hardening.subjects.lstm import OwnModel, perplexity_of, replies_of
from backtalk.models.device import evaluating
from backtalk.report.hardening_record import Candidate, Row
from backtalk.scorers.cost import BEST, Side, commonest, entropy
from backtalk.specs import parse_share
from backtalk.specs.harden import HardenSpec
from backtalk.stats import Rate
from backtalk.training import frequent


class FrequentReplies(OwnModel):
    kind, cases = "frequent", "pairs"
    measures = "selection inputs get the most frequent reply"
    config: frequent.BatchConfig

    def __init__(self, spec: HardenSpec) -> None:
        super().__init__(spec, apart=True)
        assert self.pairs.selection is not None
        self.choosing = self.pairs.selection
        self.steps = self.config.steps_of(self.pair_counts[0])  # mini-batches of an iteration
        if isinstance(self.config, frequent.FrequentConfig):
            self.config.check(self.pair_counts[0])

    def _read(self) -> None:
        spec, method = self.spec, self.spec.method
        steps, most = spec.frequent.steps_per_iteration, self.parent.max_output
        own: dict[str, Any] = {"steps": steps, "max_output": most}
        if isinstance(method, frequent.ReplyMethod):
            self.config = make_config(frequent.BatchConfig, spec, {}, method=None, **own)
            method.check(self.config)
        else:
            own |= {"r_thres": parse_share(spec.frequent.r_thres, "--r-thres"), "avoid": frozenset()}
            self.config = make_config(frequent.FrequentConfig, spec, {}, **own)

    @property
    def sizes(self) -> list[int]:
        return [self.pair_counts[0], len(self.choosing.replies), self.pair_counts[1]]

    def described(self) -> dict[str, Any]:
        return {**super().described(), "against": "frequent", "steps": self.steps}

    def notes(self) -> Iterator[str]:
        window = ""
        if isinstance(self.config, frequent.FrequentConfig):
            window = f"; the first {self.config.window:,} only fill the window"
        yield f"An iteration is {self.steps:,} mini-batches of {self.config.batch}{window}."

    def begin(self, facts: dict[str, Any], tell: Reporter) -> Training:
        model, pairs, config = self.copy(), self.pairs.positive, self.config
        checkpoint, device = self.out / CHECKPOINT, model.device
        if isinstance(config, frequent.FrequentConfig):
            how = device, pairs.inputs.shape[1]
            training: frequent.BatchTraining = frequent.FrequentTraining(model.network, config, *how)
        else:
            training = self.spec.method.training(model.network, config, device)
        reports = frequent.train_on_batches(training, pairs, config, checkpoint, facts)

        def measure(first: Candidate | None) -> Candidate:
            with evaluating(model.network, "highest"):
                said, level = replies_of(model, self.choosing.inputs), perplexity_of(model, self.choosing)
                return Candidate(0, commonest(said), len(said), level, ent_2=entropy(said, 2))

        return Training(model.network, reports, measure)

    def more_rows(self, before: Side, after: Side) -> list[Row]:
        """Of all replies, how many are the most frequent one."""
        n, pairs, seen = len(self.pairs.measured.replies), self.pairs.positive, []
        for model in (self.model(of_original=True), self.model(of_original=False)):
            with evaluating(model.network, "highest"):
                seen.append(commonest(replies_of(model, pairs.inputs[:n])))
        said = [commonest(side.said) for side in (before, after)]
        beams = [commonest([row[0] for row in side.lists]) for side in (before, after)]

        def row(part: str, search: str, n: int, counts: list[int], width: str = "") -> Row:
            rates = Rate.of(counts[0], n), Rate.of(counts[1], n)
            return Row(part, search, f"{n:,} inputs{width}", "most frequent reply", not width, *rates)

        trained = row(TRAINING, "greedy replies", min(n, len(pairs.replies)), seen)
        other = row(HELD_OUT, "beam search", len(before.lists), beams, f", width {BEST}")
        return [row(HELD_OUT, "greedy replies", n, said), trained, other]
