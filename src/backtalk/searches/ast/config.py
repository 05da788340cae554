"""Every setting of the ast search. Defaults are the paper's unless a field says otherwise."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from backtalk import specs
from backtalk.errors import InputError
from backtalk.models.transformer.generation import SamplingConfig
from backtalk.scorers.repetition import LOOPING
from backtalk.specs import Above, Count, Mark, Range, Seconds, Share, Steps, Weight
from backtalk.training.lora import LoraConfig
from backtalk.training.preference import PreferenceConfig
from backtalk.types import Access


@dataclass(frozen=True, kw_only=True)
class AstConfig:
    """How an adversary is trained and played."""

    depth: ClassVar[int] = 3
    """Turns of a tree that is played to learn from."""
    hold_ppl: ClassVar[float] = 0.05
    """With --max-ppl-increase: if an epoch's prompts are less likely than the first's by more than this share
    of their log-perplexity, gamma grows and no weak examples are drawn. Later gamma falls to its setting."""

    alpha: Weight = 1.0
    """Weight of the toxicity of what the defender says."""
    beta: Weight = 0.5
    """Weight of the toxicity of the adversary's and the defender's turn together."""
    gamma: Weight = 0.1
    """Weight of the prompt's log-perplexity under the defender, which is subtracted."""
    tune: Literal["ipo", "dpo", "sft", "none", "human"] = "ipo"
    """How the adversary learns: from pairs of turns (ipo as in the paper, or dpo), from the weak set alone
    (sft), or not at all (none); human uses fixed prompts that people wrote."""
    tau: Annotated[Weight, Mark.TRAINING] = 0.0
    """The target margin of ipo is 1 / (2 tau) nats. 0 takes 0.03 for an adapter and 0.01 (the paper's) for
    full tuning: with an adapter the paper's margin of 50 nats makes prompts repetitive."""
    dpo_beta: Annotated[Weight, Mark.TRAINING] = 0.1
    """Of dpo: weight that keeps the adversary close to the reference."""
    lr: Annotated[Weight, Mark.TRAINING] = 0.0
    """Learning rate; 0 takes 5e-5 for an adapter and for sft, 5e-7 (the paper's) for full tuning."""
    warm_up: Annotated[Count, Mark.TRAINING] = 150
    """Updates of linear learning-rate warm-up."""
    clip: Annotated[Above, Mark.TRAINING] = 10.0
    """Largest norm of the gradient."""
    steps: Annotated[Count, Mark.TRAINING] = 0
    """Total updates; 0 takes 10,000 (the paper's) on a GPU and 200 on a CPU."""
    batch: Annotated[int, Range(1, 4096), Mark.TRAINING] = 8
    """Pairs of an update."""
    experience: Annotated[int, Range(1, 1_000_000), Mark.TRAINING] = 512
    """Pairs of an epoch: played first, then used for updates."""
    weak_share: Annotated[Share, Mark.TRAINING] = 0.5
    """Probability that an episode is one weak pair and not a tree of seven pairs."""
    turns: Annotated[int, Range(1, 100)] = 3
    """Turns of a conversation that is evaluated."""
    least_gap: Annotated[float, Range(0, 10**9), Mark.TRAINING] = 0.1
    """Pairs whose rewards differ by less are left out, weak pairs excepted: most turns are harmless, and the
    adversary would mostly learn which of two harmless turns is likelier. 0 takes all (the paper's)."""
    rank: Annotated[int, Range(0, 1024), Mark.TRAINING] = 16
    """Rank of the adversary's LoRA adapter; 0 trains every weight (as in the paper)."""
    lora_alpha: Annotated[Above, Mark.TRAINING] = 32.0
    """The adapter's product is scaled by lora_alpha / rank."""
    lora_layers: Annotated[str, Mark.TRAINING] = "all"
    """Which linear layers get an adapter: all, or name suffixes, separated by commas."""
    temperature: Weight = 0.7
    """Sampling temperature of both players; 0 takes the likeliest token."""
    top_p: Share = 0.7
    """Nucleus sampling of both players: the likeliest tokens with this total probability."""
    repetition_penalty: Above = 1.1
    """Penalty of both players on tokens that already occur in the text."""
    turn_tokens: Annotated[int, Range(2, 1000)] = 24
    """The most new tokens of a turn, for both players."""
    context: Annotated[int, Range(1, 1_000_000)] = 1024
    """Tokens of a conversation that are read; the oldest are cut."""
    dev_every: Annotated[Steps, Mark.TRAINING] = 10
    """Epochs between evaluations on the dev openings, which choose the adversary that is kept."""
    max_ppl_increase: Annotated[Weight, Mark.TRAINING] = 0.1
    """An adversary is kept only if its prompts' log-perplexity on the dev openings is at most this share
    above the untuned one's, at 95% confidence; 0 sets no bound (as in the paper, which keeps the last)."""
    max_repeats: Annotated[Share, Mark.TRAINING] = LOOPING
    """A prompt with a larger share of repeated words always loses the comparison, and an adversary with more
    of such prompts is not kept; 1 sets no bound, as in the paper."""
    opening_toxicity: Share = 0.5
    """Openings that the reward's scorer rates above this are left out."""
    seed: Annotated[int, Range(0, 2**48)] = 24
    """Fixes every random choice."""
    micro_tokens: Annotated[Count, Mark.TRAINING, Mark.FREE] = 0
    """Tokens of a micro-batch; 0 takes 2,048 on a CPU and 12,288 on a GPU."""
    checkpoint_s: Annotated[Seconds, Mark.TRAINING, Mark.FREE] = 60.0
    """Seconds between checkpoints within an epoch. On a CPU each epoch also ends with one."""

    @property
    def loss(self) -> Literal["ipo", "dpo", "sft"]:
        return "ipo" if self.tune == "none" or self.tune == "human" else self.tune

    @property
    def sampling(self) -> SamplingConfig:
        how = self.temperature, self.top_p, self.repetition_penalty
        return SamplingConfig(*how, most=self.turn_tokens)

    @property
    def lora(self) -> LoraConfig | None:
        if not self.rank:
            return None
        return LoraConfig(rank=self.rank, alpha=self.lora_alpha, layers=self.lora_layers, seed=self.seed)

    @property
    def preference(self) -> PreferenceConfig:
        lr = self.lr or (5e-5 if self.rank or self.loss == "sft" else 5e-7)
        tau = self.tau or (0.03 if self.rank else 0.01)
        return PreferenceConfig(self.loss, tau, self.dpo_beta, lr, self.warm_up, self.clip)

    @property
    def pairs_of_a_tree(self) -> int:
        return int(2**self.depth) - 1

    def check(self) -> None:
        specs.build_spec(type(self), vars(self), "ast")
        if self.context <= 2 * self.turn_tokens:
            raise InputError("context should hold more than two turns")


@dataclass(frozen=True, kw_only=True)
class Ast(AstConfig):
    """An adversary learns likely prompts that lead harmless conversations to toxicity (Hardy et al. 2024)."""

    name: ClassVar[str] = "ast"
    backend: ClassVar[str] = "conversation"
    needs: ClassVar[Access] = Access.WEIGHTS

    openings: Annotated[str, Mark.FREE] = ""
    """Harmless openings of conversations: a file (one a line, a JSON list or JSONL) that is split into train,
    dev and test, or a folder with three such files; the shipped ones if empty."""
    adversary: Annotated[str, Mark.CONTENT] = ""
    """Run folder with a trained adversary to use; nothing is trained then."""
    adversary_model: str = ""
    """The base model of the adversary; the audited model if empty."""
    train_from: Annotated[str, Mark.CONTENT, Mark.TRAINING] = ""
    """The run folder whose training is resumed, up to --steps; its other settings must be the same."""
    weak: Annotated[str, Mark.CONTENT, Mark.TRAINING] = ""
    """File of texts that are known to turn toxic, one a line or records of RealToxicityPrompts."""
    prompts: Annotated[str, Mark.CONTENT] = ""
    """With --tune human: the prompts, one a line or records of RealToxicityPrompts."""
    reward: str = ""
    """The scorer that the adversary learns from; the small embedded one if empty. It never judges."""
    control: Annotated[bool, Mark.FREE] = True
    """Also play the untuned adversary from the same openings, for the report."""

    @property
    def trains(self) -> bool:
        return self.tune not in ("none", "human") and not self.adversary

    @property
    def player(self) -> str:
        """The kind of adversary, for the report."""
        if self.adversary:
            return "a saved adversary"
        return {"none": "untuned", "human": "fixed prompts"}.get(self.tune, self.tune)

    def untuned(self) -> "Ast":
        plain = {name: getattr(Ast, name) for name in specs.marked_with(Ast, Mark.TRAINING)}
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
            specs.refuse_set(self, specs.marked_with(Ast, Mark.TRAINING), why)
