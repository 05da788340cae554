"""A training list with added paraphrases, as in He & Glass 2020 (Table 2; 1 or 4 for each target).

Paraphrases that the model can't say, or that are in this or another list already, are removed and
counted. Sentences are compared by the model's own words without punctuation, and one that contains a whole
sentence of another list, as "honestly ..." may, counts as that sentence: a held-out target must stay unseen.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, zip_longest
from pathlib import Path

from backtalk.audit.cases import can_say, read_cases
from backtalk.data.targets import write_targets
from backtalk.data.tokenise import Recipe
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.paraphrase.model import load_paraphraser
from backtalk.paraphrase.rules import RuleParaphraser
from backtalk.protocols import Paraphraser
from backtalk.registry import load_model
from backtalk.terminal import make_console, printable
from backtalk.types import Target
from backtalk.wording import count as counted
from backtalk.wording import mask

SPARE = 6  # paraphrases asked for in place of one: some will be removed
Key = tuple[str, ...]


@dataclass
class Augmentation:
    """How many paraphrases were added and removed."""

    paraphrasers: str
    asked: int  # paraphrases for each target
    added: int = 0
    short: int = 0  # targets with fewer than were asked for
    removed: dict[str, int] = field(default_factory=dict)  # by reason

    def told(self) -> str:
        """One sentence for people."""
        why = ", ".join(f"{number:,} {reason}" for reason, number in self.removed.items())
        removed = f"; removed: {why}" if why else "; none had to be removed"
        least = f"fewer than {self.asked}" if self.asked > 1 else "none"
        short = f"; {counted(self.short, 'target')} got {least}" if self.short else ""
        return f"{counted(self.added, 'paraphrase')} added by {self.paraphrasers}{removed}{short}."


def augment(
    targets: Sequence[Target],
    paraphrasers: Sequence[Paraphraser],
    n: int,
    others: Mapping[str, Sequence[Target]],
    model: LocalModel,
) -> tuple[list[Target], Augmentation]:
    """Up to n new targets for each, from each paraphraser in turn; `others` are the lists, by name, that must
    stay unseen."""
    result = Augmentation(" and ".join(one.name for one in paraphrasers), n)
    texts = [target.text for target in targets]
    written = [one.paraphrase(texts, SPARE * n) for one in paraphrasers]
    foreign = {name: {words_of(model, one.text) for one in own} for name, own in others.items()}
    known = {words_of(model, text) for text in texts}
    ids = {target.id for target in chain(targets, *others.values())}
    new: list[Target] = []
    for i, target in enumerate(targets):
        wanted = len(new) + n
        for rank in zip_longest(*(own[i] for own in written)):
            for text, paraphraser in zip(rank, paraphrasers, strict=True):
                if text is None or len(new) == wanted:
                    continue
                key = words_of(model, text)
                if reason := _reason(text, key, known, foreign, model):
                    result.removed[reason] = result.removed.get(reason, 0) + 1
                    continue
                known.add(key)
                name = next(name for name in map(f"{target.id}-p{{}}".format, count(1)) if name not in ids)
                ids.add(name)
                origin = f"{target.id} by {paraphraser.name}"
                prototype = target.prototype or target.id
                new.append(replace(target, id=name, text=text, prototype=prototype, origin=origin))
        result.short += len(new) < wanted
    result.added = len(new)
    return new, result


def words_of(model: LocalModel, text: str) -> Key:
    """A sentence as the model reads it, without punctuation."""
    return tuple(word for word in model.recipe.words(text) if any(map(str.isalnum, word)))


def _reason(text: str, key: Key, known: set[Key], foreign: Mapping[str, set[Key]], model: LocalModel) -> str:
    """Why a paraphrase is removed; empty if it is kept."""
    if not can_say(model, text):
        return "with words that the model does not know"
    parts = {key, *(key[i:j] for i in range(len(key)) for j in range(i + 2, len(key) + 1))}
    for name, own in foreign.items():
        if not own.isdisjoint(parts):
            return f"in the {name} list"
    return "already in the list" if key in known else ""


def find_paraphrasers(names: str, recipe: Recipe, seed: int, device: str) -> list[Paraphraser]:
    """rules, the folder of a trained one, or several by commas."""
    return [
        RuleParaphraser(recipe, seed) if name == "rules" else load_paraphraser(name, device)
        for name in dict.fromkeys(map(str.strip, names.split(",")))
    ]


def show_paraphrases(asked: Namespace) -> None:
    """`backtalk paraphrase`: prints each sentence with its paraphrases. Typed sentences are shown in full, a
    list is masked."""
    model = load_model(asked.model, asked.device)
    if not isinstance(model, LocalModel):
        raise InputError(f"{asked.model} shows no words to compare; name a model of ours")
    paraphrasers = find_paraphrasers(asked.paraphraser, model.recipe, asked.seed, asked.device)
    if asked.targets:
        cases = read_cases(asked.targets, model, asked.limit, asked.seed)
    else:
        said = [(number, " ".join(text.split())) for number, text in enumerate(asked.sentences, start=1)]
        cases = [Target(f"t-{number:03d}", text) for number, text in said if text]
    new, result = augment(cases, paraphrasers, asked.n, {}, model)
    if not new:
        raise InputError(
            f"{asked.paraphraser} has no paraphrase that {asked.model} could say; {result.told()}"
        )
    shown = printable if asked.unmask or not asked.targets else lambda text: mask(printable(text))
    console = make_console(soft_wrap=True)
    for case in cases:
        console.print(shown(case.text), style="bold")
        for one in new:
            if one.origin.startswith(f"{case.id} by "):
                console.print(f"    {shown(one.text)}")
    if asked.out:
        write_targets(Path(asked.out), new)
        console.print(f"Audit them: backtalk audit --model {asked.model} --targets {asked.out}")
    make_console(stderr=True).print(result.told())
