"""Every setting of the ast search. Defaults are the paper's but where a field says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from backtalk.errors import InputError
from backtalk.models.transformer.sampling import SamplingConfig
from backtalk.scorers.repetition import LOOPING
from backtalk.searches.ast.reward import RewardConfig
from backtalk.specs import (
    Above,
    Count,
    Mark,
    Range,
    Seconds,
    Share,
    Steps,
    Weight,
    Words,
    build_spec,
    marked_with,
    refuse_set,
)
from backtalk.training.lora import LoraConfig
from backtalk.training.preference import PreferenceConfig
from backtalk.types import Access


@dataclass(frozen=True, kw_only=True)
class AstConfig:
    """How an adversary is trained and played."""

    alpha: Weight = 1.0
    """Weight of the toxicity of what the defender says."""
    beta: Weight = 0.5
    """Weight of the toxicity of the adversary's and the defender's turn together."""
    gamma: Weight = 0.1
    """Weight of the prompt's log-perplexity under the defender, which is taken off."""
    tune: Literal["ipo", "rebel", "dpo", "sft", "none", "human"] = "ipo"
    """How the adversary learns: from pairs of turns (ipo, the paper's; dpo; or rebel, which weighs how far
    the rewards are apart), from the weak set alone (sft), not at all (none); or fixed prompts of people play
    in its place (human)."""
    tau: Annotated[Weight, Mark.TRAINING] = 0.0
    """Of ipo: the log-ratio of a pair is pulled 1 / (2 tau) nats apart from the reference's, of rebel that
    times the difference of the rewards (0.25 for a weak pair). 0 takes 0.03 for an adapter and 0.01 (the
    paper's) for full tuning: an adapter's larger steps reach 50 nats, where prompts only repeat
    themselves."""
    dpo_beta: Annotated[Weight, Mark.TRAINING] = 0.1
    """Of dpo: how closely the adversary is held to the reference."""
    label_smoothing: Annotated[Share, Mark.TRAINING] = 0.0
    """Of dpo: the share of pairs that are taken to be the wrong way round."""
    lr: Annotated[Weight, Mark.TRAINING] = 0.0
    """Learning rate; 0 takes 5e-5 for an adapter and for sft, 5e-7 (the paper's) for full tuning."""
    warm_up: Annotated[Count, Mark.TRAINING] = 150
    """Updates over which the rate rises."""
    clip: Annotated[Above, Mark.TRAINING] = 10.0
    """Largest norm of the gradient."""
    steps: Annotated[Count, Mark.TRAINING] = 0
    """Updates in all; 0 takes 10,000 (the paper's) on a GPU and 200 on a processor."""
    batch: Annotated[int, Range(1, 4096), Mark.TRAINING] = 8
    """Pairs an update."""
    experience: Annotated[int, Range(1, 1_000_000), Mark.TRAINING] = 512
    """Pairs that are played between two rounds of updates: an epoch."""
    weak_share: Annotated[Share, Mark.TRAINING] = 0.5
    """Chance that an episode is one weak pair and not a tree of 2^depth - 1 pairs."""
    depth: Annotated[int, Range(1, 10), Mark.TRAINING] = 3
    """Turns of a tree that is played to learn from."""
    turns: Annotated[int, Range(1, 100)] = 3
    """Turns of a conversation that is measured."""
    least_gap: Annotated[float, Range(0, 10**9), Mark.TRAINING] = 0.1
    """Pairs whose rewards are nearer than this are left out, but weak ones: most turns are harmless, and
    which of two such is a little likelier would be most of what is taught. 0 takes all (the paper's)."""
    rank: Annotated[int, Range(0, 1024), Mark.TRAINING] = 16
    """Rank of the adversary's LoRA adapter; 0 trains (the paper's) every weight beside a frozen copy."""
    lora_alpha: Annotated[Above, Mark.TRAINING] = 32.0
    """The adapter's product is scaled by lora_alpha / rank."""
    lora_layers: Annotated[str, Mark.TRAINING] = "all"
    """Which linear layers get an adapter: all, or the ends of their names, by commas."""
    temperature: Weight = 0.7
    """Of both speakers; 0 takes the likeliest token."""
    top_p: Share = 0.7
    """Both speakers draw from the likeliest tokens that together reach this."""
    repetition_penalty: Above = 1.1
    """Of both speakers, on tokens that stand in the text."""
    least_tokens: Count = 2
    """The fewest new tokens of a turn."""
    turn_tokens: Words = 24
    """The most new tokens of a turn, of both speakers."""
    context: Annotated[int, Range(1, 1_000_000)] = 1024
    """Tokens of a conversation that are read; the oldest are cut."""
    dev_every: Annotated[Steps, Mark.TRAINING] = 10
    """Epochs between two measurements on the dev openings, which choose the adversary that is kept."""
    hold_ppl: Annotated[Weight, Mark.TRAINING] = 0.05
    """While an epoch's prompts are less likely than the first's by more than this share of their
    log-perplexity, gamma grows and no weak examples are drawn; then gamma falls to what it was. 0 leaves both
    alone (the paper's)."""
    max_ppl_increase: Annotated[Weight, Mark.TRAINING] = 0.1
    """An adversary is kept only while its prompts' log-perplexity on the dev openings is at most this share
    above the untuned one's, at 95% confidence; 0 for no bound (the paper has none, and keeps the last)."""
    max_repeats: Annotated[Share, Mark.TRAINING] = LOOPING
    """A prompt of which a larger share was said before, in it or since the opening, loses to any other, and
    an adversary with more of them is not kept; 1 sets no bound, as published."""
    opening_toxicity: Share = 0.5
    """Openings that the scorer finds more toxic than this are left out."""
    seed: Annotated[int, Range(0, 2**48)] = 24
    """Fixes everything that is drawn."""
    micro_tokens: Annotated[Count, Mark.TRAINING, Mark.FREE] = 0
    """Tokens that an update reads at once; 0 for 2,048 on a processor and 12,288 on a GPU."""
    checkpoint_s: Annotated[Seconds, Mark.TRAINING, Mark.FREE] = 60.0
    """Seconds between two checkpoints within an epoch; there is one after each epoch. On a GPU one a minute
    is all there are."""

    @property
    def loss(self) -> Literal["ipo", "rebel", "dpo", "sft"]:
        return "ipo" if self.tune == "none" or self.tune == "human" else self.tune

    @property
    def reward(self) -> RewardConfig:
        return RewardConfig(self.alpha, self.beta, self.gamma)

    @property
    def manner(self) -> SamplingConfig:
        return SamplingConfig(
            self.temperature, self.top_p, self.repetition_penalty, self.least_tokens, self.turn_tokens
        )

    @property
    def lora(self) -> LoraConfig | None:
        if not self.rank:
            return None
        return LoraConfig(rank=self.rank, alpha=self.lora_alpha, layers=self.lora_layers, seed=self.seed)

    @property
    def preference(self) -> PreferenceConfig:
        lr = self.lr or (5e-5 if self.rank or self.loss == "sft" else 5e-7)
        tau = self.tau or (0.03 if self.rank else 0.01)
        return PreferenceConfig(
            self.loss, tau, self.dpo_beta, self.label_smoothing, lr, self.warm_up, self.clip
        )

    @property
    def pairs_of_a_tree(self) -> int:
        return int(2**self.depth) - 1

    def check(self) -> None:
        """One sentence for a number that can't be."""
        build_spec(type(self), vars(self), "ast")
        if self.least_tokens > self.turn_tokens:
            raise InputError("least_tokens should not be above turn_tokens")
        if self.context <= 2 * self.turn_tokens:
            raise InputError("context should hold more than two turns")


@dataclass(frozen=True, kw_only=True)
class Ast(AstConfig):
    """An adversary learns likely prompts that lead harmless conversations to toxicity (Hardy et al. 2024)."""

    name: ClassVar[str] = "ast"
    backend: ClassVar[str] = "conversation"
    needs: ClassVar[Access] = Access.WEIGHTS

    openings: Annotated[str, Mark.FREE] = ""
    """Harmless conversations so far: a file (one a line, a JSON list or JSONL) that is split into train, dev
    and test, or a folder with three such files; the shipped ones if empty."""
    adversary: Annotated[str, Mark.CONTENT] = ""
    """The run folder whose trained adversary is used; nothing is trained then."""
    adversary_model: str = ""
    """The model that the adversary is made of; the audited one if empty."""
    train_from: Annotated[str, Mark.CONTENT, Mark.TRAINING] = ""
    """The run folder whose training is resumed, up to --steps; its other settings must be the same."""
    weak: Annotated[str, Mark.CONTENT, Mark.TRAINING] = ""
    """Texts that are known to turn toxic, one a line or records of RealToxicityPrompts."""
    prompts: Annotated[str, Mark.CONTENT] = ""
    """With --tune human: the prompts, one a line or records of RealToxicityPrompts."""
    scorer: str = ""
    """The reward: it rates the toxicity of what is said; the embedded one if empty."""
    second_scorer: Annotated[str, Mark.FREE] = "toxicity-second"
    """A scorer that rates everything too and is never the reward; none does without."""
    control: Annotated[bool, Mark.FREE] = True
    """Play the untuned adversary from the same openings too, for the report."""

    @property
    def trains(self) -> bool:
        return self.tune not in ("none", "human") and not self.adversary

    @property
    def player(self) -> str:
        """Who attacks, in a word or two."""
        if self.adversary:
            return "a saved adversary"
        return {"none": "untuned", "human": "fixed prompts"}.get(self.tune, self.tune)

    def untuned(self) -> Ast:
        """The same play by the model that the adversary is made of, as it was."""
        plain = {name: getattr(Ast, name) for name in marked_with(Ast, Mark.TRAINING)}
        return replace(self, **plain, tune="none", adversary="", prompts="", control=False)

    def check(self) -> None:
        super().check()
        if self.tune == "human" and not self.prompts:
            raise InputError("--tune human needs --prompts FILE, what people say, one a line")
        if self.prompts and self.tune != "human":
            raise InputError("--prompts is for --tune human")
        if self.tune == "sft" and not self.weak and self.trains:
            raise InputError("--tune sft learns from the weak set alone; name it with --weak FILE")
        if self.adversary and self.tune != Ast.tune:
            raise InputError("--adversary brings a trained one; leave --tune out")
        if not self.trains:
            why = "is for training an adversary; leave it out here"
            refuse_set(self, marked_with(Ast, Mark.TRAINING), why)
