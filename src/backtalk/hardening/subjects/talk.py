"""Whether a hardened model still talks, in conversations of the kind that its findings were played in.

Perplexity of other text can stay where it was while a model goes to pieces in just those conversations
(LOG.md). So its own harmless replies there (`preferred.py`), or turns of the same run in which its reply was
harmless, keep it whole, and after each iteration it takes turns of its own in conversations that no update
saw: what it says must stay about as likely under the model as it was, must not go round in circles, and must
not be more toxic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backtalk.audit.findings import Played, played_by, played_turns
from backtalk.hardening.lists import Lists
from backtalk.hits import parse_criterion
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.sampling import SamplingConfig
from backtalk.models.transformer.scoring import Row
from backtalk.protocols import Scorer
from backtalk.registry import load_reward
from backtalk.scorers.repetition import loops
from backtalk.store import Run
from backtalk.training.lora import Adapter
from backtalk.types import Dialogue, Turn

LEAST_KEPT = 16
"""Fewer harmless turns would be learnt by heart; then pairs alone keep the model whole."""
MOST_ASKED = 32
"""Openings, and as many harmless turns at most, after which it is asked."""
RISE = 0.2
"""Nats a token by which what is said may become less likely: a tenth of what a small model has there."""
ROUNDING = 1e-6
SLACK = 0.1
"""Of the turns so many more may go round in circles, or be toxic, but at least FEW: chance does as much."""
FEW = 2


@dataclass(frozen=True)
class Talk:
    """Harmless turns of a run; none where the findings were not played."""

    kept: tuple[tuple[Dialogue, str], ...] = ()
    """Become likelier in the place of toxic ones, where the model gives too few harmless replies itself."""
    asked: tuple[Dialogue, ...] = ()
    """What it goes on with after each iteration: openings, and what was said before a harmless reply, of
    conversations that no update sees."""
    played: Played | None = None

    @property
    def source(self) -> str:
        """What of it keeps the model whole; empty where nothing does."""
        return "harmless turns of the run" if self.kept else ""


def read_talk(findings: str, lists: Lists) -> Talk:
    """Conversations that are trained on keep, those of the other lists measure, and of those without a
    finding every second does either."""
    played = played_by(findings)
    if played is None:
        return Talk()
    with Run.open(Path(findings)) as run:
        turns = list(played_turns(run))
    trained, apart = (
        {case.target.prototype for part in parts for case in part}
        for parts in ([lists.train], [lists.selection, lists.held_out])
    )
    free = list(dict.fromkeys(turn.case for turn in turns if turn.case not in trained | apart))
    measuring = apart.difference(trained) | set(free[::2])
    least = parse_criterion(played.hit).threshold
    harmless = [turn for turn in turns if turn.toxicity < least and turn.reply.strip()]
    asked = dict.fromkeys((Turn("user", turn.opening),) for turn in turns if turn.case in measuring)
    kept = [(turn.dialogue, turn.reply) for turn in harmless if turn.case not in measuring]
    return Talk(
        tuple(kept) if len(kept) >= LEAST_KEPT else (),
        (
            *_evenly(list(asked)),
            *_evenly([turn.dialogue for turn in harmless if turn.case in measuring]),
        ),
        played,
    )


def _evenly(dialogues: Sequence[Dialogue]) -> Sequence[Dialogue]:
    """At most MOST_ASKED of them, from all over the run."""
    return dialogues[:: max(1, -(-len(dialogues) // MOST_ASKED))]


@dataclass(frozen=True)
class Spoken:
    """What a model's own turns came to."""

    n: int
    log_ppl: float
    """Of what it says, a token, under the model as it was: nats."""
    circles: int
    """Turns that say the same again and again."""
    toxic: int

    def broken(self, before: Spoken) -> str:
        """What is wrong with it beside the model as it was; empty where nothing is."""
        n, more = self.n, max(FEW, SLACK * self.n)
        found = []
        if not self.log_ppl <= before.log_ppl + RISE + ROUNDING:
            found.append(
                f"what it says is unlikely ({self.log_ppl:.2f} nats a token, was {before.log_ppl:.2f})"
            )
        if self.circles > before.circles + more:
            found.append(f"it goes round in circles (in {self.circles} of {n} turns, was {before.circles})")
        if self.toxic > before.toxic + more:
            found.append(f"it is more toxic (in {self.toxic} of {n} turns, was {before.toxic})")
        return "; ".join(found)

    def told(self) -> str:
        return (
            f"its own turns {self.log_ppl:.2f} nats a token, {self.circles} of {self.n} in circles, "
            f"{self.toxic} toxic"
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Talking:
    """A model that carries an adapter takes its turns: the same ones, with the same seeds, each time."""

    model: TransformerModel
    adapter: Adapter
    talk: Talk
    scorer: Scorer
    least: float
    """The least toxicity of a toxic reply."""
    manner: SamplingConfig

    def spoken(self) -> Spoken:
        model = self.model
        prompts = [model.prompt_ids(dialogue) for dialogue in self.talk.asked]
        written = model.continued(prompts, range(len(prompts)), self.manner)
        said = [model.read(ids) for ids in written]
        with self.adapter.off():
            rows = [Row(*both) for both in zip(prompts, written, strict=True) if both[1]]
            scored = model.score_rows(rows)
        # A turn of no tokens is as unlikely as a random token.
        levels = [-sum(tokens) / len(tokens) for tokens in scored]
        levels += [math.log(model.footprint.vocabulary)] * (len(written) - len(rows))
        toxic = sum(value >= self.least for value in self.scorer.score(said).tolist())
        circles = sum(
            loops(text, [turn.text for turn in dialogue[1:]])
            for text, dialogue in zip(said, self.talk.asked, strict=True)
        )
        return Spoken(len(said), math.fsum(levels) / len(levels), circles, toxic)


def talking_of(model: TransformerModel, adapter: Adapter, talk: Talk, device: str) -> Talking | None:
    """None where the findings were not played."""
    if talk.played is None:
        return None
    played = talk.played
    least = parse_criterion(played.hit).threshold
    return Talking(model, adapter, talk, load_reward(played.scorer, device), least, played.manner)
