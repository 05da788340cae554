"""What Hardy et al. (2024) found, as orderings: their text gives no numbers that could stand beside ours;
and the sizes of the study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from reproduction.page import read_notes
from reproduction.runner import Size as Base


class Ordering(NamedTuple):
    """One claim about two rows."""

    claim: str
    first: str
    second: str
    measure: str
    """toxicity and second: of the defender, by the reward's scorer and by the other; log_ppl: of prompts;
    spread: how far these are from their row's mean."""
    how: Literal["above", "below", "near", "no higher"]
    """near: within the room of the measure on both sides; no higher: on the upper side."""


NEAR = 0.1  # the room of a log-perplexity, as a share of the second row's
NEAR_TOXICITY = 0.02
"""The room of a toxicity. Of an untuned model's, which is near 0, a share would be no room at all."""
OTHERS = {"untuned": "untuned", "sft": "SFT", "human": "fixed prompts"}
SCORERS = {"toxicity": "", "second": " (second scorer)"}
BASELINES = (
    *(
        Ordering(f"{said} is more toxic than {other}{by}", ours, row, measure, "above")
        for ours, said in (("ours", "ours"), ("ours-short", "ours after as many updates"))
        for row, other in OTHERS.items()
        for measure, by in SCORERS.items()
    ),
    Ordering("ours is about as likely as untuned, or likelier", "ours", "untuned", "log_ppl", "no higher"),
    Ordering("ours after fewer updates is, too", "ours-short", "untuned", "log_ppl", "no higher"),
    Ordering("SFT is less likely than untuned", "sft", "untuned", "log_ppl", "above"),
    Ordering("fixed prompts are less likely than untuned", "human", "untuned", "log_ppl", "above"),
)
DEFENDERS = {
    "text": ("ours-short", "chat-to-plain", "untuned"),
    "chat": ("chat-ours", "ours-to-chat", "chat-untuned"),
}
"""Rows against each: an adversary trained against it, one trained against the other, and an untuned one."""
TRANSFER = tuple(
    Ordering(f"{claim}{by} ({defender})", first, second, measure, "above")
    for defender, (own, other, untuned) in DEFENDERS.items()
    for claim, first, second in (
        ("trained against this defender is more toxic than against the other", own, other),
        ("trained against the other is more toxic than untuned", other, untuned),
    )
    for measure, by in SCORERS.items()
)
"""Our own questions of the second defender; the paper's was a larger model."""
ABLATIONS = (
    Ordering("alpha = 0: the defender is less toxic", "no-alpha", "ours-short", "toxicity", "below"),
    Ordering("alpha = 0: prompts slightly likelier", "no-alpha", "ours-short", "log_ppl", "below"),
    Ordering("beta = 0: about as toxic as untuned", "no-beta", "untuned", "toxicity", "near"),
    Ordering("gamma = 0: more toxic", "no-gamma", "ours-short", "toxicity", "above"),
    Ordering("gamma = 0: prompts less likely", "no-gamma", "ours-short", "log_ppl", "above"),
    Ordering("no weak set: slightly less toxic", "no-weak", "ours-short", "toxicity", "below"),
    Ordering("no weak set: prompts slightly likelier", "no-weak", "ours-short", "log_ppl", "below"),
    Ordering("no weak set: likelihoods spread far more", "no-weak", "ours-short", "spread", "above"),
    *(
        Ordering(f"neither weak set nor gamma: {than} {other}", "no-weak-no-gamma", row, measure, "above")
        for measure, than in (("toxicity", "more toxic"), ("log_ppl", "less likely"))
        for row, other in (("no-gamma", "than with a weak set"), ("no-weak", "than with gamma"))
    ),
)
WHY = read_notes("ast")  # why a claim about an ablation may not hold here, as far as that is known


FREE = {"max_ppl_increase": 0.0}  # no bound on the perplexity of prompts
AGAIN = "ours-again"
"""Repeats ours-short, to see how far two trainings differ where sums are rounded in any order."""
ROWS: dict[str, dict[str, Any]] = {
    "ours-short": {"tune": "ipo"},
    "ours": {"tune": "ipo", "train_from": "ours-short"},
    "no-alpha": {"tune": "ipo", "alpha": 0.0},
    "no-beta": {"tune": "ipo", "beta": 0.0},
    "no-gamma": {"tune": "ipo", "gamma": 0.0, **FREE},
    "no-weak": {"tune": "ipo", "weak_share": 0.0},
    "no-weak-no-gamma": {"tune": "ipo", "weak_share": 0.0, "gamma": 0.0, **FREE},
    "untuned": {"tune": "none"},
    "human": {"tune": "human"},
    "sft": {"tune": "sft"},
    "after-ours": {"tune": "ipo", "model": "hardened"},
    "after-old": {"adversary": "ours-short", "model": "hardened"},
    "chat-ours": {"tune": "ipo", "template": "chat"},
    "chat-untuned": {"tune": "none", "template": "chat"},
    "ours-to-chat": {"adversary": "ours-short", "template": "chat"},
    "chat-to-plain": {"adversary": "chat-ours"},
    "every-pair": {"tune": "ipo", "least_gap": 0.0},
    "dpo": {"tune": "dpo"},
    AGAIN: {"tune": "ipo"},
}
"""The settings of each row; the longest trainings, and those that others need, come first. `adversary` is the
row whose adversary is used, `train_from` the row whose training is resumed, `model` the hardened model."""


@dataclass(frozen=True)
class Size(Base):
    """Every number that makes the study longer or shorter; the defaults are the paper's where it has any."""

    steps: int = 10_000  # updates of the main row
    short_steps: int = 2048
    """Updates of baselines and ablations, and of the main row when it is compared with them: 32 epochs."""
    experience: int = 512
    turns: int = 3
    turn_tokens: int = 24
    dev_every: int = 5  # the paper measures every 10 epochs and chooses nothing by it
    test: int = 0  # test openings at most; 0 takes all
    tune_lr: float = 0.0
    iterations: int = 6  # of the hardening
    played: int = 64  # trees that are played batched and one by one, to compare the speed

    def limited(self, limit: int, restarts: int) -> Size:
        return replace(self, test=limit) if limit else self


SIZES = {
    "paper": Size(),
    "mini": Size(
        steps=8, short_steps=4, experience=16, turns=2, turn_tokens=6, dev_every=1, test=6,
        tune_lr=0.003, iterations=1, played=2,
    ),
}  # fmt: skip
