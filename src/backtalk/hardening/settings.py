"""How to train, from the flags of `harden`: settings by name, and what is set over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from backtalk.errors import InputError, unknown
from backtalk.models.lstm.model import LocalModel
from backtalk.models.transformer.model import TransformerModel
from backtalk.specs import refuse_set
from backtalk.specs.harden import HardenSpec, check_parts
from backtalk.training.avoid import PAPER_AVOID, avoid_ids, frequent_ids
from backtalk.training.course import CourseConfig, ReplyMethod
from backtalk.training.frequent import FrequentConfig
from backtalk.training.negative import PAPER_SETTINGS, NegativeConfig
from backtalk.training.rules import HitRule
from backtalk.training.updates import DescentConfig, UpdateConfig

DEFAULT: dict[str, Any] = {
    "optimizer": "adam",
    "lr": 0.001,
    "lambda_pos": 0.0,
    "kl": 10.0,
    "together": True,
    "margin": 1.0,
    "rounds": 40,
}
"""What the settings `default` change of NegativeConfig's own values, which are the paper's for Switchboard.
With those the bound on perplexity is met before half of the hits are gone (LOG.md)."""
DEFAULT_AVOID = "none"
"""No frequent-word avoiding there: with it the rare words of a target bear the whole push, and with KL 10
perplexity rises by more for as many hits (LOG.md)."""
PUBLISHED_AVOID = "paper"

LORA_DEFAULT: dict[str, Any] = {
    **DEFAULT,
    "lr": 0.0003,
    "kl": 100.0,
    "batch": 32,
    "positive_batch": 16,
}
"""The same for an adapter on a Hugging Face model: with a larger step or a smaller KL term its language goes
before the hits do (LOG.md)."""
LORA_SEARCHED: dict[str, Any] = {**LORA_DEFAULT, "batch": 100, "margin": 2.0, "repairs": 8}
"""The same where a search finds new triggers in every iteration: a sentence has to fall further to stay away,
and updates that only keep the model whole bring its language back."""

LORA_PLAYED: dict[str, Any] = {**LORA_DEFAULT, "lambda_pos": 2.0}
"""The same where conversations were played: half of what keeps the model whole are its own harmless replies,
and only where these become likelier does it learn what to say in the place of a toxic one (LOG.md)."""


def check_spec(spec: HardenSpec) -> None:
    """Refuses what can't go together, before anything loads."""
    if not isinstance(spec.method, HitRule | ReplyMethod):
        raise InputError(f"the method {spec.method.name} is no HitRule and no ReplyMethod; mend its package")
    check_parts(spec)
    if spec.keep == "last":
        refuse_set(spec, {"max_ppl_increase"}, "does nothing with --keep last; leave it out")
    if spec.sentences.settings != "default" and spec.sentences.escalate:
        refuse_set(spec.sentences, {"escalate"}, "does nothing with the papers' --settings; leave it out")
    if spec.against == "targets" and not isinstance(spec.method, HitRule):
        raise InputError(
            f"--method {spec.method.name} knows no targets; add --against frequent, or choose another method"
        )


def frequent_config(spec: HardenSpec, max_output: int) -> CourseConfig:
    """Of a hardening against frequent replies."""
    given: dict[str, Any] = {
        "iterations": spec.iterations,
        "steps": spec.frequent.steps_per_iteration,
        "max_output": max_output,
        "seed": spec.seed,
        "checkpoint_s": spec.checkpoint_s,
    }
    for name in ("lr", "batch", "mean_over"):
        if value := getattr(spec, name):
            given[name] = value
    for name in ("lambda_pos", "kl"):
        if text := getattr(spec, name):
            given[name] = weight(text, name)
    method, counting = spec.method, spec.counting
    if isinstance(method, ReplyMethod):
        config = CourseConfig(**given)
        method.check(config)
        return config
    return FrequentConfig(
        method=method,
        r_thres=share(counting.r_thres, "r-thres", most=1.0),
        window=counting.window,
        eos_scale=counting.eos_scale,
        always_positive=counting.always_positive,
        **given,
    )


def config_of(spec: HardenSpec, model: LocalModel, goals: Sequence[Sequence[int]]) -> NegativeConfig:
    """`goals` are the training targets' ids."""
    name = spec.sentences.settings
    which = spec.sentences.avoid or (DEFAULT_AVOID if name == "default" else PUBLISHED_AVOID)
    config = negative_config(spec, by_name(name), avoided(which, model, goals))
    return replace(config, triggers=spec.searching.triggers or config.triggers)


def negative_config(spec: HardenSpec, settings: dict[str, Any], avoid: frozenset[int]) -> NegativeConfig:
    """The settings with what is set over them."""
    own = spec.sentences
    given: dict[str, Any] = {
        "method": spec.method,
        "iterations": spec.iterations,
        "average": own.average,
        "avoid": avoid,
        "seed": spec.seed,
        "checkpoint_s": spec.checkpoint_s,
    }
    rates = {"lr": spec.lr, "batch": spec.batch, "mean_over": spec.mean_over}
    given |= {name: value for name, value in rates.items() if value}
    given |= {name: value for name in ("positives", "rounds") if (value := getattr(own, name))}
    for name, text in (("lambda_pos", spec.lambda_pos), ("kl", spec.kl), ("margin", own.margin)):
        if text:
            given[name] = weight(text, name)
    if own.repairs:
        given["repairs"] = whole_number(own.repairs, "repairs")
    return NegativeConfig(**{**settings, **given})


def config_values(config: DescentConfig) -> dict[str, Any]:
    """How to train, in one mapping; the words that are spared are left to the caller."""
    values = asdict(config)
    values.pop("avoid", None)
    if isinstance(config, UpdateConfig):
        values |= {"method": config.method.name, **vars(config.method)}
    return values


def defaults_left(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of the settings `default` is not set over by these flags."""
    return {
        name: value
        for name, value in {**DEFAULT, "avoid": DEFAULT_AVOID}.items()
        if given.get(name) in (None, "", 0)
    }


def by_name(name: str) -> dict[str, Any]:
    if name == "default":
        return dict(DEFAULT)
    paper = name.removeprefix("paper-")
    if paper not in PAPER_SETTINGS:
        raise unknown("settings", name, ["default", *PAPER_SETTINGS])
    return dict(PAPER_SETTINGS[paper])


def avoided(which: str, model: LocalModel, goals: Sequence[Sequence[int]]) -> frozenset[int]:
    """Frequent-word avoiding: the ids without negative updates."""
    if which == "none":
        return frozenset()
    if which == "frequent":
        return frequent_ids(goals, len(PAPER_AVOID))
    return avoid_ids(PAPER_AVOID, model.vocabulary)


def avoided_tokens(which: str, model: TransformerModel, goals: Sequence[Sequence[int]]) -> frozenset[int]:
    """Frequent-word avoiding: the paper's words where they are single tokens, alone or within a sentence."""
    if which == "none":
        return frozenset()
    if which == "frequent":
        return frequent_ids(goals, len(PAPER_AVOID))
    found = set(model.reply_ids("a")[-1:])
    for word in PAPER_AVOID[1:]:
        for form in (word, f" {word}", word.capitalize(), f" {word.capitalize()}"):
            ids = model.tokenizer(form, add_special_tokens=False)["input_ids"]
            found |= set(ids) if len(ids) == 1 else set()
    return frozenset(found)


def weight(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"--{name.replace('_', '-')} should be a number from 0 on, not {text!r}")
    return value


def whole_number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"--{name} should be a whole number from 0 on, not {text!r}")
    return int(text)


def rise(text: str) -> float:
    """0.05 of "5%" or "0.05": how much perplexity may rise."""
    return share(text, "max-ppl-increase")


def bound_of(spec: HardenSpec) -> float:
    """Infinite where the last iteration is kept, whatever it costs."""
    return float("inf") if spec.keep == "last" else rise(spec.max_ppl_increase)


def share(text: str, flag: str, most: float = float("inf")) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < most:
        raise InputError(f"--{flag} should read like 5% or 0.05, not {text!r}")
    return value
