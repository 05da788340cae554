"""The three lists of a hardening: what is trained against, what chooses the iteration, and what is measured
once, at the end.

They are split by prototype and input, or given. No variant of a sentence and no input is in two of them.
Paraphrases widen the training list alone, after the split.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backtalk.audit.backend import digest
from backtalk.audit.backends.fixed_inputs import FoundCase
from backtalk.audit.cases import NAMES, can_say, read_cases
from backtalk.audit.findings import TooFewError, input_key, read_found, read_openings
from backtalk.data.targets import load_mal, read_targets, split_by_prototype, widen, write_targets
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.output_file import write_whole
from backtalk.paraphrase.augment import Augmentation, augment, words_of
from backtalk.protocols import Paraphraser
from backtalk.specs import refuse_set
from backtalk.specs.harden import HardenSpec
from backtalk.types import Target

SHARES, FOUND_SHARES = (0.625, 0.125, 0.25), (0.5, 0.2, 0.3)
"""Of targets (500, 100 and 200 of 800), and of findings, of which there are fewer."""
LEAST_GROUPS = 5
"""Fewer leave a list empty."""


@dataclass(frozen=True)
class Lists:
    train: list[FoundCase]
    selection: list[FoundCase]
    held_out: list[FoundCase]
    augmentation: Augmentation | None = field(default=None, kw_only=True)
    """What paraphrases were added to the first list."""
    left_out: int = field(default=0, kw_only=True)
    """Targets of given lists that the model has no words for."""

    def by_name(self) -> dict[str, list[FoundCase]]:
        """Each list under its file's name."""
        return {"train": self.train, "selection": self.selection, "held-out": self.held_out}

    def write(self, folder: Path) -> None:
        """Writes each list as JSONL: targets or, if they have inputs, findings in the format of `export`. The
        flags of `harden` and `audit` read both."""
        for name, cases in self.by_name().items():
            path = folder / f"{name}.jsonl"
            if any(case.inputs for case in cases):
                write_whole(path, (json.dumps(row) + "\n" for row in _rows(cases)))
            else:
                write_targets(path, [case.target for case in cases])

    def digest(self) -> str:
        """What a checkpoint remembers them by."""
        said = [[(one.target.id, one.target.text, one.inputs) for one in part] for part in self.parts]
        return digest(said)

    @property
    def parts(self) -> tuple[list[FoundCase], ...]:
        return self.train, self.selection, self.held_out


def targets_of(cases: Iterable[FoundCase]) -> list[Target]:
    return [case.target for case in cases]


def target_lists(spec: HardenSpec, model: LocalModel) -> Lists:
    """Lists of sentences for a model that is searched."""
    own = spec.sentences
    if own.selection or own.held_out:
        return _given_targets(spec, model)
    # A list that is cut before the unknown ones are dropped would end up shorter than asked for.
    whole = own.targets == "mal-wide" or own.targets not in NAMES
    found = read_cases(own.targets, model, 0 if whole else own.limit, spec.seed)
    known = [target for target in found if can_say(model, target.text)][: own.limit or None]
    prototypes = {target.prototype or target.id for target in known}
    if len(prototypes) < LEAST_GROUPS:
        raise InputError(
            f"{own.targets} gives {len(prototypes)} different targets that {model.name} has words for; "
            f"three lists need at least {LEAST_GROUPS}, and some hundred to show anything"
        )
    return Lists(*map(_without_inputs, split_by_prototype(known, SHARES, spec.seed)))


def found_lists(spec: HardenSpec) -> Lists:
    """Lists of findings, or of sentences with openings, for a model that is asked."""
    own, findings, openings = spec.sentences, spec.adapter.findings, spec.adapter.openings
    if openings:
        refuse_set(own, {"selection", "held_out"}, "goes with --findings; --openings are split")
        return opened_lists(_listed(own.targets), openings, spec.seed, own.limit)
    refuse_set(own, {"targets"}, "goes with --openings; the findings name their own")
    if own.selection or own.held_out:
        return _given_found(spec)
    return split_found(read_found(findings, own.limit), findings, spec.seed)


def split_found(cases: Sequence[FoundCase], name: str, seed: int) -> Lists:
    """Findings that share a prototype or an input are in one list."""
    groups = _groups(cases)
    if len(set(groups)) < LEAST_GROUPS:
        raise TooFewError(
            f"{name} holds {len(set(groups))} groups of findings that share no input and no prototype; three "
            f"lists need at least {LEAST_GROUPS}, or give --selection and --held-out"
        )
    grouped = [replace(case.target, prototype=group) for case, group in zip(cases, groups, strict=True)]
    by_id = {case.target.id: case for case in cases}
    parts = split_by_prototype(grouped, FOUND_SHARES, seed)
    return Lists(*([by_id[target.id] for target in part] for part in parts))


def opened_lists(targets: Sequence[Target], openings: str, seed: int, limit: int = 0) -> Lists:
    """Sentences are split by prototype, inputs among themselves; each list tries its sentences after its
    inputs."""
    inputs = list({input_key(one): one for one in read_openings(Path(openings))}.values())
    named = [Target(str(place), "", prototype=str(place)) for place in range(len(inputs))]
    targets = targets[:limit] if limit else targets
    for found, what in (
        (named, f"{openings} holds {len(inputs)} inputs"),
        (targets, "--targets gives too few"),
    ):
        if len({target.prototype or target.id for target in found}) < LEAST_GROUPS:
            raise InputError(f"{what}; three lists need at least {LEAST_GROUPS} different ones")
    both = (split_by_prototype(own, FOUND_SHARES, seed) for own in (targets, named))
    return Lists(
        *(
            [FoundCase(target, tuple(inputs[int(one.id)] for one in own)) for target in part]
            for part, own in zip(*both, strict=True)
        )
    )


def widen_training(lists: Lists, paraphrasers: Sequence[Paraphraser], n: int, model: LocalModel) -> Lists:
    """The lists with n paraphrases, where there are as many, of each training target."""
    others = {"selection": targets_of(lists.selection), "held-out": targets_of(lists.held_out)}
    new, augmentation = augment(targets_of(lists.train), paraphrasers, n, others, model)
    if not new:
        raise InputError(
            f"no paraphrase of the {len(lists.train)} training targets is left; leave --augment out or use "
            f"another --paraphraser ({augmentation.told()})"
        )
    return replace(lists, train=[*lists.train, *_without_inputs(new)], augmentation=augmentation)


def _given_targets(spec: HardenSpec, model: LocalModel) -> Lists:
    """Three lists as they are, less what the model has no words for. With --keep last nothing is chosen, so
    the second may share sentences with both others."""
    own = spec.sentences
    flags = {"targets": own.targets, "selection": own.selection, "held-out": own.held_out}
    _refuse_missing(flags)
    found = {flag: read_cases(name, model, own.limit, spec.seed) for flag, name in flags.items()}
    known = {flag: [one for one in part if can_say(model, one.text)] for flag, part in found.items()}
    for flag, part in known.items():
        if not part:
            raise InputError(f"--{flag} {flags[flag]} holds no target that {model.name} has words for")
    words = {flag: {words_of(model, one.text) for one in part} for flag, part in known.items()}
    _refuse_shared(words, "sentence", spec.keep == "best")
    left_out = sum(map(len, found.values())) - sum(map(len, known.values()))
    return Lists(*map(_without_inputs, known.values()), left_out=left_out)


def _given_found(spec: HardenSpec) -> Lists:
    """Three files as they are."""
    own = spec.sentences
    flags = {"findings": spec.adapter.findings, "selection": own.selection, "held-out": own.held_out}
    _refuse_missing(flags)
    lists = Lists(*(read_found(name, own.limit) for name in flags.values()))
    inputs = [{input_key(one) for case in part for one in case.inputs} for part in lists.parts]
    _refuse_shared(dict(zip(flags, inputs, strict=True)), "input")
    return lists


def _refuse_missing(flags: Mapping[str, str]) -> None:
    for flag, name in flags.items():
        if not name:
            raise InputError(
                f"--{flag} is missing: --selection and --held-out are given together or not at all"
            )


def _refuse_shared(keys: Mapping[str, set[Any]], what: str, chooses: bool = True) -> None:
    """`chooses`: whether the second list chooses an iteration, and so has to be apart from the others."""
    first, second, third = keys
    apart = [(first, third)] + ([(first, second), (second, third)] if chooses else [])
    for one, other in apart:
        if both := len(keys[one] & keys[other]):
            raise InputError(
                f"{both} {what}{'s' if both > 1 else ''} of --{other} stand in --{one} too, so it would "
                "prove nothing; take them out of one"
            )


def _listed(name: str) -> list[Target]:
    if name == "mal":
        return load_mal()
    if name == "mal-wide":
        return widen(load_mal(), final_period=True)
    if not Path(name).exists():
        raise InputError(f"--targets {name} is no file; with --openings the lists are mal and mal-wide")
    return read_targets(name)


def _without_inputs(targets: Iterable[Target]) -> list[FoundCase]:
    return [FoundCase(target, ()) for target in targets]


def _groups(cases: Sequence[FoundCase]) -> list[str]:
    """A name for each case: the same for those that share a prototype or an input, however far apart."""
    parent: dict[Hashable, str] = {}

    def root(key: str) -> str:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for case in cases:
        keys = [f"in {input_key(dialogue)}" for dialogue in case.inputs]
        keys += [f"of {case.target.prototype}"] if case.target.prototype else []
        for key in keys[1:]:
            first, second = sorted((root(keys[0]), root(key)))
            parent[second] = first
    return [root(f"in {input_key(case.inputs[0])}") for case in cases]


def _rows(cases: Iterable[FoundCase]) -> Iterator[dict[str, Any]]:
    for case in cases:
        target = case.target
        for restart, dialogue in enumerate(case.inputs):
            yield {
                "case": target.id,
                "restart": restart,
                "status": "found",
                "target": target.text,
                "category": target.category,
                "severity": target.severity,
                "prototype": target.prototype,
                "turns": [turn._asdict() for turn in dialogue],
            }
