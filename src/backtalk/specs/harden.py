"""The settings of `backtalk harden`: those that every hardening has. A method's own are its config, and what
only some hardenings have are parts: which of them apply follows from --model, --against and --method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from backtalk.errors import InputError
from backtalk.registry import is_transformer, method_config, methods_with
from backtalk.specs import (
    Above,
    Choice,
    Count,
    Duration,
    Mark,
    Range,
    Rank,
    Seconds,
    Seed,
    Share,
    Steps,
    Top,
    Tries,
    Weight,
    Words,
    build_spec,
    chosen,
    flag_names,
    identity_values,
    spec_values,
)
from backtalk.specs.model import ModelOptions


@dataclass(frozen=True)
class Sentences:
    """What the model must not say, and how it is trained away."""

    targets: str = "mal-wide"
    """What it must not say: a list or file; split by prototype into train, selection and held-out."""
    limit: Count = 0
    """Use at most this many targets, over all three lists; 0 uses all. Of given lists, of each."""
    selection: str = ""
    """A list or file of its own to choose the iteration with; with --held-out, in the place of the split."""
    held_out: str = ""
    """A list or file of its own that is measured at the end; with --selection, in the place of the split."""
    hit: str = ""
    """The criterion that is trained against; if empty io-sample-avg-k1, or o-sample-avg-k1 for a Hugging Face
    model (for played conversations their run's), for which it may also be contains, exact, o-greedy or
    toxic-0.5: decided by really replying."""
    settings: str = "default"
    """Learning rate and weights by name: default, or the paper's: switchboard, ubuntu, opensubtitles."""
    positives: Annotated[int, Range(0, 1000)] = 0
    """Positive updates for each negative one; 0 takes the number of the settings."""
    margin: str = ""
    """How far below the threshold (nats a word) a hit has to fall; empty takes that of the settings."""
    average: Literal["batch", "hits"] = "batch"
    """The loss of the hits is divided by the targets of the batch, or by the hits that are left."""
    avoid: Literal["", "paper", "frequent", "none"] = ""
    """Words without negative updates: the paper's seven, the seven most frequent of the list, or none; empty
    takes that of the settings."""
    rounds: Annotated[int, Range(0, 100_000)] = 0
    """The most negative updates on one batch of hits; 0 takes the number of the settings."""
    repairs: str = ""
    """Positive updates after those on a batch of hits, at most as many; empty takes those of the settings."""
    search_sweeps: Tries = 5
    """The most sweeps of a search inside training (one start, left at the first hit)."""
    escalate: Annotated[int, Range(0, 4)] = 4
    """How often the search inside training may become stronger, each time it finds almost nothing: more
    starts, more candidates and sweeps, o beside io, then gcg. 0 leaves it as it is. A Hugging Face model on a
    processor escalates only if this is given."""
    audits: Annotated[bool, Mark.FREE] = True
    """Prove it by audits of both models; off, the same command adds them later."""


@dataclass(frozen=True)
class Searching:
    """How a model of ours is searched, in training and in the audits before and after."""

    augment: Annotated[int, Range(0, 1000)] = 0
    """Paraphrases added for each training target; what overlaps with the other lists is left out."""
    paraphraser: str = "rules"
    """With --augment: rules, the folder of a model that recipes/paraphrase.yaml made, or both by a comma."""
    triggers: Literal["", "first", "best"] = ""
    """What the search in training brings: the first trigger that hits, or as published the best that it can
    find, which is harder to train away; empty takes that of the settings."""
    length: Words = 8
    """Words of a trigger, in training and in the audits."""
    top: Top = 25
    """Candidates at each position (G), in training and in the audits."""
    sweeps: Tries = 6
    """The most sweeps in the audits before and after (T)."""
    restarts: Tries = 2
    """Restarts in the audits before and after (R)."""


@dataclass(frozen=True)
class Frequent:
    """Replies that a model of ours gives too often."""

    steps_per_iteration: Count = 100
    """Mini-batches between two measurements; 0 takes all pairs, as in the paper."""


@dataclass(frozen=True)
class Counting:
    """Which replies are too frequent (Algorithm 2 of He & Glass 2020)."""

    r_thres: str = "1%"
    """A reply with a larger share of the model's replies is discouraged."""
    window: Steps = 200
    """Earlier mini-batches over which that share is taken, beside the one at hand."""
    eos_scale: Share = 0.1
    """How much of the negative gradient reaches the end-of-turn token."""
    always_positive: bool = False
    """A positive update at every step, not only beside a negative one."""


@dataclass(frozen=True)
class Adapting:
    """What a Hugging Face model is trained on, and its adapter."""

    findings: str = ""
    """What was found: a run folder, its exported findings, or a file of pairs (JSONL with input or turns, and
    reply; or TSV). --selection and --held-out are such files then."""
    openings: str = ""
    """With --targets in the place of --findings: inputs, one a line or JSONL, after which none of the targets
    should be likely."""
    reference: str = ""
    """Pairs that T_out and the cost are measured on; the shipped ones if empty."""
    scorer: str = ""
    """With --hit toxic-T: what rates its replies; the embedded scorer if empty."""
    rank: Rank = 16
    """The rank of the LoRA adapter."""
    alpha: Above = 32.0
    """The adapter's product is scaled by alpha / rank."""
    lora_layers: str = "all"
    """The linear layers that are adapted, all of attention and MLP, or the ends of their names by commas:
    q_proj,v_proj."""
    merge: bool = False
    """Write a whole model instead of an adapter."""
    micro_tokens: Annotated[Count, Mark.FREE] = 0
    """Tokens that are trained on at once; fewer take less memory. 0: 2,048, on a GPU 16,384."""
    gradient_checkpointing: Annotated[bool, Mark.FREE] = False
    """Compute activations twice instead of keeping them; takes less memory."""


@dataclass(frozen=True)
class HardenSpec:
    """What `backtalk harden` does."""

    model: str = "chitchat"
    """The model; OUT/model is hardened."""
    against: Literal["targets", "frequent"] = "targets"
    """Train away targets, or frequent replies."""
    method: Annotated[Any, Choice("method", method_config, methods_with)] = "negative"
    """One of the methods above."""
    data: str = ""
    """Pairs that keep it whole, a corpus as `train` takes it; the model's own if empty."""
    format: str = "auto"
    """Their format; see `backtalk list formats`."""
    out: Annotated[str, Mark.FREE] = "hardened"
    """The folder; the same command continues."""
    iterations: Steps = 20
    """Passes over the targets; against frequent, measurements."""
    batch: Annotated[int, Range(0, 65_536)] = 0
    """Of targets, or pairs; 0 takes 100, or 64."""
    lr: Weight = 0.0
    """Learning rate; 0 takes that of the settings."""
    lambda_pos: str = ""
    """Weight of the positive updates; empty takes that of the settings."""
    kl: str = ""
    """Weight of the KL term that keeps the model near the original. If empty, it starts at the default and
    adapts to use the allowed perplexity."""
    mean_over: Literal["", "sentences", "words"] = ""
    """Losses are means over these; empty takes that of the settings."""
    max_ppl_increase: str = "3.4%"
    """How much perplexity may rise."""
    keep: Literal["best", "last"] = "best"
    """Best iteration, or as published the last."""
    measure: Annotated[int, Range(1, 10**9)] = 1000
    """Pairs, not trained on, that measure it."""
    seed: Seed = 1
    """Fixes the lists, the order and every start."""
    max_time: Annotated[Duration, Mark.FREE] = ""
    """Stop in time to end within it: 90s, 10m, 2h."""
    checkpoint_s: Annotated[Seconds, Mark.FREE] = 60.0
    """Seconds between checkpoints."""
    device: Annotated[str, Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""
    sentences: Sentences = field(default_factory=Sentences)
    searching: Searching = field(default_factory=Searching)
    frequent: Frequent = field(default_factory=Frequent)
    counting: Counting = field(default_factory=Counting)
    adapter: Adapting = field(default_factory=Adapting)
    options: ModelOptions = field(default_factory=ModelOptions)

    @property
    def escalations(self) -> int:
        """The papers' settings keep the papers' search."""
        return self.sentences.escalate if self.sentences.settings == "default" else 0

    @property
    def adapts_kl(self) -> bool:
        return not self.kl and self.keep == "best" and self.sentences.settings == "default"

    def __post_init__(self) -> None:
        if isinstance(self.method, str):  # the default, or a name that a caller gave
            object.__setattr__(self, "method", method_config(self.method)())


class Part(NamedTuple):
    """Settings that only some hardenings have."""

    kind: type[Any]
    title: str
    """The heading over their flags."""
    owner: str
    """What the settings belong to, for the error where they do not apply."""
    applies: Callable[[str, str, type[Any]], bool]
    """Whether they apply, from the model's name, --against and the method."""


PARTS: dict[str, Part] = {
    "sentences": Part(
        Sentences,
        "against targets",
        "--against targets",
        lambda model, against, method: against == "targets",
    ),
    "searching": Part(
        Searching,
        "a model of ours, which is searched",
        "models of ours with --against targets",
        lambda model, against, method: against == "targets" and not is_transformer(model),
    ),
    "frequent": Part(
        Frequent,
        "against frequent replies",
        "--against frequent",
        lambda model, against, method: against == "frequent",
    ),
    "counting": Part(
        Counting,
        "which replies are too frequent",
        "--against frequent with a method that counts replies",
        lambda model, against, method: against == "frequent" and getattr(method, "knows_hits", False),
    ),
    "adapter": Part(
        Adapting,
        "a Hugging Face model, which gets an adapter",
        "Hugging Face models",
        lambda model, against, method: is_transformer(model),
    ),
    "options": Part(
        ModelOptions,
        "how a Hugging Face model is read",
        "Hugging Face models",
        lambda model, against, method: is_transformer(model),
    ),
}


def parts_of(model: str, against: str, method: type[Any]) -> dict[str, Part]:
    """The parts that apply."""
    if against == "frequent" and is_transformer(model):
        raise InputError("--against frequent trains models of ours alone; a Hugging Face model has findings")
    return {name: part for name, part in PARTS.items() if part.applies(model, against, method)}


def belongs(setting: str) -> str:
    """A sentence that says what a setting belongs to; empty for an unknown setting."""
    owners = [part.owner for part in PARTS.values() if setting in flag_names(part.kind)]
    if named := methods_with(setting):
        owners.append(f"--method {', '.join(named)}")
    flag = f"--{setting.replace('_', '-')}"
    return f"{flag} belongs to {owners[0]}; leave it out, or choose that" if owners else ""


def check_parts(spec: HardenSpec) -> None:
    """Refuses settings that would do nothing."""
    applying = parts_of(spec.model, spec.against, type(spec.method))
    for name in PARTS:
        if name not in applying and (others := chosen(getattr(spec, name))):
            raise InputError(belongs(others[0]))


def applied_values(spec: HardenSpec) -> dict[str, Any]:
    """The settings that tell this hardening from another, in one mapping."""
    values = identity_values(spec)
    parts = {name: values.pop(name) for name in PARTS}
    method = values.pop("method")
    flat = {**values, "method": method.pop("name"), **method}
    for name in parts_of(spec.model, spec.against, type(spec.method)):
        flat |= parts[name]
    return flat


def stored_values(spec: HardenSpec) -> dict[str, Any]:
    """What a summary stores: all settings that apply, nested as in a YAML file."""
    others = PARTS.keys() - parts_of(spec.model, spec.against, type(spec.method)).keys()
    return {name: value for name, value in spec_values(spec).items() if name not in others}


def begun_spec(facts: Mapping[str, Any]) -> HardenSpec:
    """From what tells a hardening from others: `applied_values`, and more that no flag says."""
    kinds: list[type[Any]] = [HardenSpec, method_config(str(facts.get("method", HardenSpec.method)))]
    known = {name for kind in (*kinds, *(part.kind for part in PARTS.values())) for name in flag_names(kind)}
    return flat_spec({name: value for name, value in facts.items() if name in known}, "hardening.json")


def flat_spec(values: Mapping[str, Any], source: str = "") -> HardenSpec:
    """A spec from flat settings, as flags are: those of the method and of the parts find their place."""
    method = values.get("method", HardenSpec.method)
    kind = method_config(method) if isinstance(method, str) else type(method)
    nested: dict[str, Any] = {"method": {"name": kind.name}}
    if not isinstance(method, str):
        nested["method"] |= vars(method)
    own = flag_names(HardenSpec)
    for setting, value in values.items():
        part = next((name for name, part in PARTS.items() if setting in flag_names(part.kind)), "")
        if part:
            nested.setdefault(part, {})[setting] = value
        elif setting not in own and (setting in flag_names(kind) or methods_with(setting)):
            nested["method"][setting] = value
        elif setting != "method":
            nested[setting] = value
    return build_spec(HardenSpec, nested, source)
