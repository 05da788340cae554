"""A training list with added paraphrases, as in He & Glass 2020 (Table 2; 1 or 4 for each target).

Paraphrases that the model can't say, or that are in this or another list already, are removed and
counted. Sentences are compared by the model's own words without punctuation, and one that contains a whole
sentence of another list, as "honestly ..." may, counts as that sentence: a held-out target must stay unseen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

from backtalk.audit.cases import can_say
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Target
from backtalk.wording import count as counted

SPARE = 6  # paraphrases asked for in place of one: some will be removed
Key = tuple[str, ...]
Paraphrase = Callable[[Sequence[str], int], list[list[str]]]  # returns at most n paraphrases of each sentence


@dataclass
class Augmentation:
    """How many paraphrases were added and removed."""

    asked: int  # paraphrases for each target
    added: int = 0
    short: int = 0  # targets with fewer than were asked for
    removed: dict[str, int] = field(default_factory=dict)  # by reason

    def told(self) -> str:
        why = ", ".join(f"{number:,} {reason}" for reason, number in self.removed.items())
        removed = f"; removed: {why}" if why else "; none had to be removed"
        least = f"fewer than {self.asked}" if self.asked > 1 else "none"
        short = f"; {counted(self.short, 'target')} got {least}" if self.short else ""
        return f"{counted(self.added, 'paraphrase')} added{removed}{short}."


def augment(
    targets: Sequence[Target],
    paraphrase: Paraphrase,
    n: int,
    others: Mapping[str, Sequence[Target]],
    model: LocalModel,
) -> tuple[list[Target], Augmentation]:
    """Up to n new targets for each; `others` are the lists, by name, that must stay unseen."""
    result = Augmentation(n)
    texts = [target.text for target in targets]
    foreign = {name: {words_of(model, one.text) for one in own} for name, own in others.items()}
    known = {words_of(model, text) for text in texts}
    ids = {target.id for target in chain(targets, *others.values())}
    new: list[Target] = []
    for target, written in zip(targets, paraphrase(texts, SPARE * n), strict=True):
        wanted = len(new) + n
        for text in written:
            if len(new) == wanted:
                break
            key = words_of(model, text)
            if reason := _reason(text, key, known, foreign, model):
                result.removed[reason] = result.removed.get(reason, 0) + 1
                continue
            known.add(key)
            name = next(name for name in map(f"{target.id}-p{{}}".format, count(1)) if name not in ids)
            ids.add(name)
            prototype = target.prototype or target.id
            new.append(
                replace(target, id=name, text=text, prototype=prototype, origin=f"{target.id} by rules")
            )
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
