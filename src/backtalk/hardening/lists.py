"""The three lists of a hardening, split by prototype or given: what is trained against, what chooses the
checkpoint, and what is measured once, at the end. No variant of a sentence is in two of them; given lists may
share none with the one that is held out. Paraphrases widen the first alone, after the split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backtalk.cases import NAMES, can_say, read_cases
from backtalk.data.targets import split_by_prototype, write_targets
from backtalk.errors import InputError
from backtalk.models.local import LocalModel
from backtalk.paraphrase.augment import Augmentation, augment, words_of
from backtalk.protocols import Paraphraser
from backtalk.specs.harden import HardenSpec
from backtalk.types import Target

SHARES = (0.625, 0.125, 0.25)
"""500, 100 and 200 of 800."""
LEAST_PROTOTYPES = 5
"""Fewer leave a list empty."""


@dataclass(frozen=True)
class Lists:
    train: list[Target]
    selection: list[Target]
    held_out: list[Target]
    augmentation: Augmentation | None = None
    """What paraphrases were added to the first list."""
    left_out: int = 0
    """Targets of given lists that the model has no words for."""

    def write(self, folder: Path) -> None:
        for name, targets in self.by_name().items():
            write_targets(folder / f"{name}.jsonl", targets)

    def digest(self) -> str:
        """What a checkpoint remembers them by."""
        said = [[(one.id, one.text) for one in part] for part in self.by_name().values()]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    def by_name(self) -> dict[str, list[Target]]:
        """Each list under its file's name."""
        return {"train": self.train, "selection": self.selection, "held-out": self.held_out}


def read_lists(name: str, model: LocalModel, limit: int, seed: int) -> Lists:
    """The targets that the model has words for, at most `limit`, in three lists."""
    # A list that is cut before the unknown ones are dropped would end up shorter than asked for.
    whole = name == "mal-wide" or name not in NAMES
    found = read_cases(name, model, 0 if whole else limit, seed)
    known = [target for target in found if can_say(model, target.text)]
    known = known[:limit] if limit else known
    prototypes = {target.prototype or target.id for target in known}
    if len(prototypes) < LEAST_PROTOTYPES:
        raise InputError(
            f"{name} gives {len(prototypes)} different targets that {model.name} has words for; "
            f"three lists need at least {LEAST_PROTOTYPES}, and some hundred to show anything"
        )
    train, selection, held_out = split_by_prototype(known, SHARES, seed)
    return Lists(train, selection, held_out)


def given_lists(spec: HardenSpec, model: LocalModel) -> Lists:
    """Three lists as they are, less what the model has no words for. They may share no sentence; with --keep
    last nothing is chosen, so the second may then share some with both others."""
    own = spec.sentences
    flags = {"targets": own.targets, "selection": own.selection, "held-out": own.held_out}
    for flag, name in flags.items():
        if not name:
            raise InputError(
                f"--{flag} is missing: --selection and --held-out are given together or not at all"
            )
    found = {flag: read_cases(name, model, own.limit, spec.seed) for flag, name in flags.items()}
    known = {flag: [one for one in part if can_say(model, one.text)] for flag, part in found.items()}
    for flag, part in known.items():
        if not part:
            raise InputError(f"--{flag} {flags[flag]} holds no target that {model.name} has words for")
    words = {flag: {words_of(model, one.text) for one in part} for flag, part in known.items()}
    apart = [("targets", "held-out")]
    if spec.keep == "best":
        apart += [("targets", "selection"), ("selection", "held-out")]
    for first, second in apart:
        if both := len(words[first] & words[second]):
            raise InputError(
                f"{both} sentence{'s' if both > 1 else ''} of --{second} stand in --{first} too, so it would "
                "prove nothing; take them out of one"
            )
    left_out = sum(map(len, found.values())) - sum(map(len, known.values()))
    return Lists(known["targets"], known["selection"], known["held-out"], left_out=left_out)


def widen_training(lists: Lists, paraphrasers: Sequence[Paraphraser], n: int, model: LocalModel) -> Lists:
    """The lists with n paraphrases, where there are as many, of each training target."""
    others = {"selection": lists.selection, "held-out": lists.held_out}
    new, augmentation = augment(lists.train, paraphrasers, n, others, model)
    if not new:
        raise InputError(
            f"no paraphrase of the {len(lists.train)} training targets is left; leave --augment out or use "
            f"another --paraphraser ({augmentation.told()})"
        )
    return replace(lists, train=[*lists.train, *new], augmentation=augmentation)
