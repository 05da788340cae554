"""The three lists of a hardening: cases to train on, to choose the iteration, and to measure at the end.

They are split by prototype and input, or given. No variant of a sentence and no input is in two of them.
Paraphrases widen the training list only, after the split.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backtalk.audit.backend import digest
from backtalk.audit.backends.fixed_inputs import FoundCase
from backtalk.audit.cases import NAMES, can_say, read_cases
from backtalk.audit.findings import TooFewError, input_key, read_found, write_found
from backtalk.data.targets import split_by_prototype, write_targets
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.paraphrase.augment import Augmentation, Paraphrase, augment, words_of
from backtalk.specs import refuse_set
from backtalk.specs.harden import HardenSpec
from backtalk.types import Target
from backtalk.wording import count

SHARES = (0.625, 0.125, 0.25)  # of targets: 500, 100 and 200 of 800
FOUND_SHARES = (0.5, 0.2, 0.3)  # of findings, of which there are fewer
LEAST_GROUPS = 5  # fewer leave a list empty


@dataclass(frozen=True)
class Lists:
    train: list[FoundCase]
    selection: list[FoundCase]
    held_out: list[FoundCase]
    augmentation: Augmentation | None = field(default=None, kw_only=True)  # paraphrases in the first list
    left_out: int = field(default=0, kw_only=True)  # targets of given lists that the model has no words for

    @property
    def inputs(self) -> set[str]:
        """Of all lists, as keys."""
        return {input_key(one) for part in self.parts for case in part for one in case.inputs}

    @property
    def parts(self) -> tuple[list[FoundCase], ...]:
        return self.train, self.selection, self.held_out

    def by_name(self) -> dict[str, list[FoundCase]]:
        """Each list under its file's name."""
        return dict(zip(("train", "selection", "held-out"), self.parts, strict=True))

    def write(self, folder: Path) -> None:
        """Writes each list as JSONL that flags read: targets or, if they have inputs, findings."""
        for name, cases in self.by_name().items():
            path = folder / f"{name}.jsonl"
            if any(case.inputs for case in cases):
                write_found(path, cases)
            else:
                write_targets(path, targets_of(cases))

    def digest(self) -> str:
        """What a checkpoint remembers them by."""
        return digest([[(one.target.id, one.target.text, one.inputs) for one in part] for part in self.parts])


def targets_of(cases: Iterable[FoundCase]) -> list[Target]:
    return [case.target for case in cases]


def target_lists(spec: HardenSpec, model: LocalModel) -> Lists:
    """Sentences, for a model that is searched."""
    own = spec.sentences
    if own.selection or own.held_out:
        return _given_targets(spec, model)
    # A list that is cut before the unknown ones are dropped would end up shorter than asked for.
    whole = own.targets == "mal-wide" or own.targets not in NAMES
    found = read_cases(own.targets, model, 0 if whole else own.limit, spec.seed)
    known = [target for target in found if can_say(model, target.text)][: own.limit or None]
    groups = [target.prototype or target.id for target in known]
    _refuse_few(groups, own.targets, f"different targets that {model.name} has words for")
    return Lists(*(list(map(FoundCase, part)) for part in split_by_prototype(known, SHARES, spec.seed)))


def _given_targets(spec: HardenSpec, model: LocalModel) -> Lists:
    """Three lists as they are, less what the model has no words for. With --keep last nothing is chosen, so
    the second may share sentences with both others."""
    own = spec.sentences
    flags = _flags(spec, targets=own.targets)
    found = {flag: read_cases(name, model, own.limit, spec.seed) for flag, name in flags.items()}
    known = {flag: [one for one in part if can_say(model, one.text)] for flag, part in found.items()}
    for flag, part in known.items():
        if not part:
            raise InputError(f"--{flag} {flags[flag]} holds no target that {model.name} has words for")
    words = {flag: {words_of(model, one.text) for one in part} for flag, part in known.items()}
    _refuse_shared(words, "sentence", spec.keep == "best")
    left_out = sum(map(len, found.values())) - sum(map(len, known.values()))
    return Lists(*(list(map(FoundCase, part)) for part in known.values()), left_out=left_out)


def widen_training(lists: Lists, paraphrase: Paraphrase, n: int, model: LocalModel) -> Lists:
    """The lists with n paraphrases, where there are as many, of each training target."""
    others = {"selection": targets_of(lists.selection), "held-out": targets_of(lists.held_out)}
    new, augmentation = augment(targets_of(lists.train), paraphrase, n, others, model)
    if not new:
        why = f"no paraphrase of the {len(lists.train)} training targets is left ({augmentation.told()})"
        raise InputError(f"{why}; leave --augment out")
    return replace(lists, train=[*lists.train, *map(FoundCase, new)], augmentation=augmentation)


def found_lists(spec: HardenSpec) -> Lists:
    """Findings, for a model that is asked."""
    own, findings = spec.sentences, spec.adapter.findings
    refuse_set(own, {"targets"}, "is for models of ours; findings name their own")
    if not (own.selection or own.held_out):
        return split_found(read_found(findings, own.limit), findings, spec.seed)
    flags = _flags(spec, findings=findings)
    lists = Lists(*(read_found(name, own.limit) for name in flags.values()))
    inputs = [{input_key(one) for case in part for one in case.inputs} for part in lists.parts]
    _refuse_shared(dict(zip(flags, inputs, strict=True)), "input")
    return lists


def split_found(cases: Sequence[FoundCase], name: str, seed: int) -> Lists:
    """Findings that share a prototype or an input are in one list."""
    groups = _groups(cases)
    _refuse_few(groups, name, "groups of findings that share no input and no prototype")
    grouped = [replace(case.target, prototype=group) for case, group in zip(cases, groups, strict=True)]
    by_id = {case.target.id: case for case in cases}
    parts = split_by_prototype(grouped, FOUND_SHARES, seed)
    return Lists(*([by_id[target.id] for target in part] for part in parts))


def _groups(cases: Sequence[FoundCase]) -> list[str]:
    """A name for each case: the same for those that share a prototype or an input, however far apart."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            key = parent[key]
        return key

    for case in cases:
        keys = [f"in {input_key(dialogue)}" for dialogue in case.inputs]
        keys += [f"of {case.target.prototype}"] if case.target.prototype else []
        for key in keys[1:]:
            first, second = sorted((root(keys[0]), root(key)))
            parent[second] = first
    return [root(f"in {input_key(case.inputs[0])}") for case in cases]


def _flags(spec: HardenSpec, **first: str) -> dict[str, str]:
    """The three lists by their flags, all of which have to be given."""
    flags = {**first, "selection": spec.sentences.selection, "held-out": spec.sentences.held_out}
    for flag, name in flags.items():
        if not name:
            raise InputError(f"--{flag} is missing: give both --selection and --held-out, or neither")
    return flags


def _refuse_few(groups: Iterable[str], name: str, what: str) -> None:
    if (n := len(set(groups))) < LEAST_GROUPS:
        raise TooFewError(f"{name} holds {n} {what}; three lists need at least {LEAST_GROUPS}")


def _refuse_shared(keys: Mapping[str, set[Any]], what: str, chooses: bool = True) -> None:
    """`chooses`: whether the second list chooses an iteration, and so has to be apart from the others."""
    first, second, third = keys
    apart = [(first, third)] + ([(first, second), (second, third)] if chooses else [])
    for one, other in apart:
        if both := len(keys[one] & keys[other]):
            shared = f"{count(both, what)} of --{other} stand in --{one} too"
            raise InputError(f"{shared}, so it would prove nothing; take them out of one")
