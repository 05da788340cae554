"""A training list widened by paraphrases, as in He & Glass 2020 (Table 2; 1 or 4 for each target).

What the model can't say, what is there already, and what another list holds is removed and counted.
Sentences are compared by the model's own words without punctuation, and one that holds a whole sentence of
another list, as "honestly ..." does, counts as that sentence: a held-out target must stay unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

SPARE = 6
"""Paraphrases asked for in place of one: some will be removed."""
UNSAYABLE, KNOWN = "with words that the model does not know", "already in the list"
Key = tuple[str, ...]


@dataclass
class Augmentation:
    """What came of it."""

    paraphrasers: str
    asked: int
    """Paraphrases for each target."""
    added: int = 0
    short: int = 0
    """Targets with fewer than were asked for."""
    removed: dict[str, int] = field(default_factory=dict)
    """By reason."""

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
    """Up to n new targets for each; `others` are the lists, by name, that must stay unseen."""
    result = Augmentation(" and ".join(one.name for one in paraphrasers), n)
    texts = [target.text for target in targets]
    by_paraphraser = [one.paraphrase(texts, SPARE * n) for one in paraphrasers]
    foreign = {name: {words_of(model, one.text) for one in own} for name, own in others.items()}
    known = {words_of(model, text) for text in texts}
    ids = {target.id for target in chain(targets, *others.values())}
    new: list[Target] = []
    for i, target in enumerate(targets):
        made = 0
        for text, paraphraser in _in_turn([own[i] for own in by_paraphraser], paraphrasers):
            if made == n:
                break
            key = words_of(model, text)
            reason = _reason(text, key, known, foreign, model)
            if reason:
                result.removed[reason] = result.removed.get(reason, 0) + 1
                continue
            known.add(key)
            made += 1
            name = next(name for name in map(f"{target.id}-p{{}}".format, count(1)) if name not in ids)
            ids.add(name)
            origin = f"{target.id} by {paraphraser.name}"
            prototype = target.prototype or target.id
            new.append(replace(target, id=name, text=text, prototype=prototype, origin=origin))
        result.short += made < n
    result.added = len(new)
    return new, result


def words_of(model: LocalModel, text: str) -> Key:
    """A sentence as the model reads it, without punctuation."""
    return tuple(word for word in model.recipe.words(text) if any(map(str.isalnum, word)))


def _in_turn(
    lists: Sequence[Sequence[str]], paraphrasers: Sequence[Paraphraser]
) -> Iterable[tuple[str, Paraphraser]]:
    """The first of each paraphraser, then the second of each, and so on."""
    for texts in zip_longest(*lists):
        yield from ((text, one) for text, one in zip(texts, paraphrasers, strict=True) if text is not None)


def _reason(text: str, key: Key, known: set[Key], foreign: Mapping[str, set[Key]], model: LocalModel) -> str:
    """Why a paraphrase is removed; nothing if it stays."""
    if not can_say(model, text):
        return UNSAYABLE
    for name, own in foreign.items():
        if key in own or not own.isdisjoint(_parts(key)):
            return f"in the {name} list"
    return KNOWN if key in known else ""


def _parts(key: Key) -> Iterable[Key]:
    """The runs of two or more words in a sentence."""
    return (key[i:j] for i in range(len(key)) for j in range(i + 2, len(key) + 1))


def find_paraphrasers(names: str, recipe: Recipe, seed: int, device: str) -> list[Paraphraser]:
    """rules, the folder of a trained one, or several by commas."""
    return [
        RuleParaphraser(recipe, seed) if name == "rules" else load_paraphraser(name, device)
        for name in dict.fromkeys(map(str.strip, names.split(",")))
    ]


def show_paraphrases(
    sentences: Sequence[str],
    targets: str,
    limit: int,
    n: int,
    model_name: str,
    paraphraser_names: str,
    seed: int,
    out: str,
    unmask: bool,
    device: str,
) -> None:
    """Prints each sentence with its paraphrases. What was typed is shown in full, a list is masked."""
    model = load_model(model_name, device)
    if not isinstance(model, LocalModel):
        raise InputError(f"{model_name} shows no words to compare; name a model of ours")
    paraphrasers = find_paraphrasers(paraphraser_names, model.recipe, seed, device)
    if targets:
        cases = read_cases(targets, model, limit, seed)
    else:
        said = [(number, " ".join(text.split())) for number, text in enumerate(sentences, start=1)]
        cases = [Target(f"t-{number:03d}", text) for number, text in said if text]
    new, result = augment(cases, paraphrasers, n, {}, model)
    if not new:
        raise InputError(
            f"{paraphraser_names} has no paraphrase that {model_name} could say; {result.told()}"
        )
    shown = printable if unmask or not targets else lambda text: mask(printable(text))
    console = make_console(soft_wrap=True)
    for case in cases:
        console.print(shown(case.text), style="bold")
        for one in new:
            if one.origin.startswith(f"{case.id} by "):
                console.print(f"    {shown(one.text)}")
    if out:
        write_targets(Path(out), new)
        console.print(f"Audit them: backtalk audit --model {model_name} --targets {out}")
    make_console(stderr=True).print(result.told())
