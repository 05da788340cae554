"""The settings of `backtalk harden`. HardenSpec holds what every hardening has, and the method's config. Its
parts apply to some hardenings only: --model and --against decide which."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import backtalk.specs as specs
from backtalk.errors import InputError
from backtalk.registry import is_transformer, method_config, methods_with
from backtalk.specs import ModelOptions


@dataclass(frozen=True)
class Sentences:
    """What the model must not say, and how it is trained away."""

    title: ClassVar = "against targets"
    owner: ClassVar = "--against targets"
    targets: str = "mal-wide"
    """What the model must not say: a list or file, split by prototype into train, selection and held-out."""
    limit: specs.Count = 0
    """The most targets, of all three lists together or, with --selection, of each; 0: all."""
    selection: str = ""
    """Targets that choose the best iteration: a list or file. Needs --held-out; then nothing is split."""
    held_out: str = ""
    """Targets that measure the result: a list or file. Needs --selection; then nothing is split."""
    hit: str = ""
    """The criterion that training aims at. Empty: io-sample-avg-k1; for a Hugging Face model that of the
    findings' run if it is chance-P or toxic-T, else o-sample-avg-k1. A Hugging Face model may also be judged
    by its replies: contains, exact, o-greedy or toxic-0.5."""
    scorer: str = ""
    """The judge of replies in the audits, see `backtalk list scorers`; if empty the best one installed that
    training does not follow."""
    margin: specs.Weight | None = None
    """How far below the threshold (nats a word) a hit has to fall; if empty 1, or 2 where a search found the
    triggers of a Hugging Face model."""
    avoid: Literal["", "paper", "frequent", "none"] = ""
    """Words without negative updates: the paper's seven, the seven most frequent of the list, or none; if
    empty paper for a Hugging Face model, none for a model of ours."""
    rounds: Annotated[int, specs.Range(1, 100_000)] | None = None
    """The most negative updates on one batch of hits; if empty 40."""
    repairs: specs.Count | None = None
    """Positive updates after those on a batch of hits, at most as many; if empty 0, or 8 where a search found
    the triggers of a Hugging Face model."""
    search_sweeps: specs.Tries = 5
    """The most sweeps of a search inside training (one start, stopped at the first hit)."""
    escalate: Annotated[int, specs.Range(0, 4)] = 4
    """How often the search inside training may become stronger, each time it finds almost nothing: more
    starts, more candidates and sweeps, o beside io, then gcg. 0 never changes it. A Hugging Face model on a
    CPU escalates only if this is given."""
    audits: Annotated[bool, specs.Mark.FREE] = True
    """Audit both models as proof; if off, the same command adds the audits later."""


@dataclass(frozen=True)
class Searching:
    """How a model of ours is searched, in training and in the audits before and after."""

    title: ClassVar = "a model of ours, which is searched"
    owner: ClassVar = "models of ours with --against targets"
    augment: Annotated[int, specs.Range(0, 1000)] = 0
    """Paraphrases to add for each training target, without those that overlap with the other lists."""
    length: specs.Words = 8
    """Words of a trigger, in training and in the audits."""
    top: specs.Top = 25
    """Candidates at each position (G), in training and in the audits."""
    sweeps: specs.Tries = 6
    """The most sweeps in the audits before and after (T)."""
    restarts: specs.Tries = 2
    """Restarts in the audits before and after (R)."""


@dataclass(frozen=True)
class Frequent:
    """Replies that a model of ours gives too often (Algorithm 2 of He & Glass 2020)."""

    title: ClassVar = "against frequent replies"
    owner: ClassVar = "--against frequent"
    steps_per_iteration: specs.Count = 100
    """Mini-batches between two measurements; 0 takes all pairs, as in the paper."""
    r_thres: specs.Percentage = "1%"
    """A reply with a larger share of the model's replies is discouraged."""


@dataclass(frozen=True)
class Adapting:
    """What a Hugging Face model is trained on, and its adapter."""

    title: ClassVar = "a Hugging Face model, which gets an adapter"
    owner: ClassVar = "Hugging Face models"
    findings: str = ""
    """What was found: a run folder, its exported findings, or a file of pairs (JSONL with input or turns, and
    reply; or TSV). --selection and --held-out are such files then."""
    reference: str = ""
    """Pairs that measure T_out and the cost; if empty those that ship with backtalk."""
    reward: str = ""
    """With --hit toxic-T: the scorer that training follows; if empty the small embedded one. It never judges
    the audits."""
    rank: specs.Rank = 16
    """The rank of the LoRA adapter."""
    alpha: specs.Above = 32.0
    """The adapter's product is scaled by alpha / rank."""
    lora_layers: str = "all"
    """The linear layers that are adapted, all of attention and MLP, or the ends of their names by commas:
    q_proj,v_proj."""
    merge: bool = False
    """Write a whole model instead of an adapter."""
    micro_tokens: Annotated[specs.Count, specs.Mark.FREE] = 0
    """Tokens that are trained on at once; fewer take less memory. 0: 2,048, on a GPU 16,384."""


@dataclass(frozen=True)
class Published:
    """Where the papers' training differs from ours. These have no flags: a YAML file or Python sets them. See
    the config of the same field names in `training/` for what each does; None is that config's default."""

    title: ClassVar = ""
    owner: ClassVar = ""
    optimizer: Literal["sgd", "adam"] | None = None
    lambda_pos: specs.Weight | None = None
    mean_over: Literal["sentences", "words"] | None = None
    positives: Annotated[int, specs.Range(1, 1000)] | None = None
    positive_batch: Annotated[int, specs.Range(1, 65_536)] | None = None
    together: bool | None = None
    average: Literal["batch", "hits"] | None = None
    triggers: Literal["first", "best"] | None = None
    window: specs.Steps | None = None
    eos_scale: specs.Share | None = None
    always_positive: bool | None = None


@dataclass(frozen=True)
class HardenSpec:
    """What `backtalk harden` does."""

    model: str = "chitchat"
    """Name or folder; OUT/model is the hardened one."""
    against: Literal["targets", "frequent"] = "targets"
    """Train away targets or frequent replies."""
    method: Annotated[Any, specs.Choice("method", method_config, methods_with)] = "negative"
    """One of the methods above."""
    data: str = ""
    """Corpus, as of `train`, that preserves other replies; if empty the model's own."""
    format: str = "auto"
    """Format of --data; see `backtalk list formats`."""
    out: Annotated[str, specs.Mark.FREE] = "hardened"
    """Output folder; repeat to resume."""
    iterations: specs.Steps = 20
    """Passes over the targets, or measurements."""
    batch: Annotated[int, specs.Range(1, 65_536)] | None = None
    """Batch size; if empty 100 (LoRA 32), 64 of pairs."""
    lr: specs.Weight | None = None
    """Learning rate; if empty 0.001, or 0.0003 for LoRA."""
    kl: specs.Weight | None = None
    """Weight of the KL term that keeps the model near the original; if empty it adapts to the allowed
    perplexity."""
    max_ppl_increase: specs.Increase = "3.4%"
    """The most that perplexity may rise."""
    keep: Literal["best", "last"] = "best"
    """The best iteration or, as published, the last."""
    measure: Annotated[int, specs.Range(1, 10**9)] = 1000
    """Held-out pairs that measure perplexity."""
    seed: specs.Seed = 1
    """Seed of the lists, the order and every start."""
    max_time: Annotated[specs.Duration, specs.Mark.FREE] = ""
    """Stop in time to end within it: 90s, 10m, 2h."""
    checkpoint_s: Annotated[specs.Seconds, specs.Mark.FREE] = 60.0
    """Seconds between checkpoints."""
    device: Annotated[str, specs.Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""
    sentences: Sentences = field(default_factory=Sentences)
    searching: Searching = field(default_factory=Searching)
    frequent: Frequent = field(default_factory=Frequent)
    adapter: Adapting = field(default_factory=Adapting)
    options: ModelOptions = field(default_factory=ModelOptions)
    published: Published = field(default_factory=Published)

    @property
    def bound(self) -> float:
        """The most that perplexity may rise; infinite if the last iteration is kept."""
        share = specs.parse_share(self.max_ppl_increase, "max_ppl_increase")
        return math.inf if self.keep == "last" else share

    def __post_init__(self) -> None:
        if isinstance(self.method, str):  # the default, or a name that a caller gave
            object.__setattr__(self, "method", method_config(self.method)())


PARTS = specs.parts_in(HardenSpec)


def parts_of(model: str, against: str) -> dict[str, type[Any]]:
    """The parts that apply."""
    hugging_face, targets = is_transformer(model), against == "targets"
    if hugging_face and not targets:
        raise InputError("--against frequent trains models of ours only; a Hugging Face model has findings")
    applies = {
        "sentences": targets,
        "searching": targets and not hugging_face,
        "frequent": not targets,
        "adapter": hugging_face,
        "options": hugging_face,
        "published": True,
    }
    return {name: part for name, part in PARTS.items() if applies[name]}


def check_spec(spec: HardenSpec) -> None:
    """Refuses what can't go together, and settings that would do nothing, before anything loads."""
    method = spec.method
    if not hasattr(method, "knows_hits"):
        raise InputError(f"the method {method.name} is no HitRule and no ReplyMethod; mend its package")
    applying = parts_of(spec.model, spec.against)
    for name in PARTS:
        if name not in applying and (others := specs.chosen(getattr(spec, name))):
            raise InputError(specs.belongs(HardenSpec, others[0]))
    if spec.keep == "last":
        specs.refuse_set(spec, {"max_ppl_increase"}, "does nothing with --keep last; leave it out")
    if not method.knows_hits:
        specs.refuse_set(spec.frequent, {"r_thres"}, "goes with a method that counts replies; leave it out")
        if spec.against == "targets":
            raise InputError(f"--method {method.name} knows no targets; add --against frequent")


def applied_values(spec: HardenSpec) -> dict[str, Any]:
    """The settings that identify a hardening, not nested, without those that are None."""
    values = specs.identity_values(spec)
    parts = {name: values.pop(name) for name in PARTS}
    method = values.pop("method")
    flat = {**values, "method": method.pop("name"), **method}
    for name in parts_of(spec.model, spec.against):
        flat |= parts[name]
    return {name: value for name, value in flat.items() if value is not None}


def stored_values(spec: HardenSpec) -> dict[str, Any]:
    """All settings that apply, nested as in a YAML file; summary.json stores them."""
    others = PARTS.keys() - parts_of(spec.model, spec.against).keys()
    return {name: value for name, value in specs.spec_values(spec).items() if name not in others}
