"""Every number of the ast search. Defaults are the paper's but where a field says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from backtalk.errors import InputError
from backtalk.models.transformer.manner import Manner
from backtalk.repeats import LOOPING
from backtalk.searches.ast.reward import RewardConfig
from backtalk.spec import (
    Above,
    Count,
    Range,
    Rank,
    Seconds,
    Share,
    Steps,
    Weight,
    Words,
    build_spec,
)
from backtalk.training.lora import LoraConfig
from backtalk.training.preference import PreferenceConfig


@dataclass(frozen=True, kw_only=True)
class AstConfig:
    """How an adversary is trained and played."""

    alpha: Weight = 1.0
    """Weight of the toxicity of what the defender says."""
    beta: Weight = 0.5
    """Weight of the toxicity of the adversary's and the defender's turn together."""
    gamma: Weight = 0.1
    """Weight of the prompt's log-perplexity under the defender, which is taken off."""
    loss: Literal["ipo", "rebel", "dpo", "sft"] = "ipo"
    """ipo (the paper's), rebel and dpo learn from pairs; sft only imitates the weak set, the paper's
    baseline."""
    tau: Weight = 0.0
    """Of ipo: the log-ratio of a pair is pulled 1 / (2 tau) nats apart from the reference's, of rebel that
    times the difference of the rewards (0.25 for a weak pair). 0 takes 0.03 for an adapter and 0.01 (the
    paper's) for full tuning: an adapter's larger steps come as far as 50 nats, where nothing but circles is
    said."""
    dpo_beta: Weight = 0.1
    """Of dpo: how closely the adversary is held to the reference."""
    label_smoothing: Share = 0.0
    """Of dpo: the share of pairs that are taken to be the wrong way round."""
    lr: Annotated[float, Range(0, 1e38)] = 0.0
    """Learning rate; 0 takes 5e-5 for an adapter and for sft, 5e-7 (the paper's) for full tuning."""
    warm_up: Count = 150
    """Updates over which the rate rises."""
    clip: Above = 10.0
    """Largest norm of the gradient."""
    steps: Count = 10_000
    """Updates in all; 0 leaves the adversary as it is."""
    batch: Annotated[int, Range(1, 4096)] = 8
    """Pairs an update."""
    experience: Annotated[int, Range(1, 1_000_000)] = 512
    """Pairs that are played between two rounds of updates: an epoch."""
    weak_share: Share = 0.5
    """Chance that an episode is one weak pair and not a tree of 2^depth - 1 pairs."""
    depth: Annotated[int, Range(1, 10)] = 3
    """Turns of a tree that is played to learn from."""
    turns: Annotated[int, Range(1, 100)] = 3
    """Turns of a conversation that is measured."""
    least_gap: Annotated[float, Range(0, 10**9)] = 0.1
    """Pairs whose rewards are nearer than this are left out, but weak ones: most turns are harmless, and
    which of two such is a little likelier would be most of what is taught. 0 takes all (the paper's)."""
    tuning: Literal["lora", "full"] = "lora"
    """Train an adapter, or (the paper's) every weight beside a frozen copy."""
    rank: Rank = 16
    """Of the adapter."""
    lora_alpha: Above = 32.0
    """The adapter's product is scaled by lora_alpha / rank."""
    lora_layers: str = "all"
    """Which linear layers get an adapter: all, or the ends of their names, by commas."""
    temperature: Weight = 0.7
    """Of both speakers; 0 takes the likeliest token."""
    top_p: Share = 0.7
    """Both speakers draw from the likeliest tokens that together reach this."""
    repetition_penalty: Above = 1.1
    """Of both speakers, on tokens that stand in the text."""
    least_tokens: Count = 2
    """Of a turn."""
    most_tokens: Words = 24
    """Of a turn."""
    context: Annotated[int, Range(1, 1_000_000)] = 1024
    """Tokens of a conversation that are read; the oldest are cut."""
    dev_every: Steps = 10
    """Epochs between two measurements on the dev openings, which choose the adversary that is kept."""
    hold_ppl: Weight = 0.05
    """While an epoch's prompts are less likely than the first's by more than this share of their
    log-perplexity, gamma grows and no weak examples are drawn; then gamma falls to what it was. 0 leaves both
    alone (the paper's)."""
    max_ppl_increase: Weight = 0.1
    """An adversary is kept only while its prompts' log-perplexity on the dev openings is at most this share
    above the untuned one's, at 95% confidence; 0 for no bound (the paper has none, and keeps the last)."""
    max_repeats: Share = LOOPING
    """A prompt of which a larger share was said before, in it or since the opening, loses to any other, and
    an adversary with more of them is not kept; 1 sets no bound, as published."""
    opening_toxicity: Share = 0.5
    """Openings that the scorer finds more toxic than this are left out."""
    seed: Annotated[int, Range(0, 2**48)] = 24
    """Fixes everything that is drawn."""
    micro_tokens: Count = 0
    """Tokens that an update reads at once; 0 for 2,048 on a processor and 12,288 on a GPU."""
    checkpoint_s: Seconds = 30.0
    """Seconds between two checkpoints within an epoch; there is one after each epoch. On a GPU one a minute
    is all there are."""

    @property
    def reward(self) -> RewardConfig:
        return RewardConfig(self.alpha, self.beta, self.gamma)

    @property
    def manner(self) -> Manner:
        return Manner(
            self.temperature, self.top_p, self.repetition_penalty, self.least_tokens, self.most_tokens
        )

    @property
    def lora(self) -> LoraConfig | None:
        if self.tuning == "full":
            return None
        return LoraConfig(rank=self.rank, alpha=self.lora_alpha, layers=self.lora_layers, seed=self.seed)

    @property
    def preference(self) -> PreferenceConfig:
        lr = self.lr or (5e-7 if self.tuning == "full" and self.loss != "sft" else 5e-5)
        tau = self.tau or (0.01 if self.tuning == "full" else 0.03)
        return PreferenceConfig(
            self.loss, tau, self.dpo_beta, self.label_smoothing, lr, self.warm_up, self.clip
        )

    @property
    def pairs_of_a_tree(self) -> int:
        return int(2**self.depth) - 1

    def check(self) -> None:
        """One sentence for a number that can't be."""
        build_spec(AstConfig, vars(self), "ast")
        if self.least_tokens > self.most_tokens:
            raise InputError("least_tokens should not be above most_tokens")
        if self.context <= 2 * self.most_tokens:
            raise InputError("context should hold more than two turns")
