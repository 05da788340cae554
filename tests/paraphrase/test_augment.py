"""Overlap is removed and counted, by hand-made lists and a paraphraser that says what it is told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from backtalk.data.targets import read_targets, write_targets
from backtalk.hardening.lists import target_lists, targets_of, widen_training
from backtalk.models.folder import load_embedded
from backtalk.models.lstm.model import LocalModel
from backtalk.paraphrase.augment import augment, words_of
from backtalk.paraphrase.rules import RuleParaphraser
from backtalk.specs import flat_spec
from backtalk.specs.harden import HardenSpec
from backtalk.types import Target
from tests.paraphrase.samples import tiny_model


@dataclass(frozen=True)
class Told:
    """Gives the same answers always."""

    answers: Mapping[str, Sequence[str]]

    def paraphrase(self, texts: Sequence[str], n: int) -> list[list[str]]:
        return [list(self.answers.get(text, ()))[:n] for text in texts]


TRAIN = [
    Target("a", "you are dumb", "rude", 2, "proto-a"),
    Target("b", "go away", "rude", 1),
]
OTHERS = {
    "selection": [Target("c", "i hate you .")],
    "held-out": [Target("d", "You are so stupid"), Target("a-p1", "you are boring")],
}


def test_every_reason_is_counted_and_nothing_of_the_other_lists_is_left() -> None:
    told = Told(
        {
            "you are dumb": [
                "you are a zebra",  # words that the model does not know
                "YOU are so stupid .",  # held-out, but for case and punctuation
                "honestly you are so stupid",  # holds a held-out sentence
                "i hate you",  # selection
                "you are dumb .",  # the sentence itself, but for a period
                "you 're dumb",
            ],
            "go away": ["you're dumb!", "just go away", "please go away", "go away now"],
        }
    )
    model = tiny_model()
    new, result = augment(TRAIN, told.paraphrase, 2, OTHERS, model)
    assert [target.text for target in new] == ["you 're dumb", "just go away", "please go away"]
    unknown, held_out, selection, already = result.removed
    assert ("know" in unknown, "held-out" in held_out, "selection" in selection) == (True, True, True)
    assert list(result.removed.values()) == [1, 2, 1, 2]
    assert (result.added, result.asked, result.short) == (3, 2, 1)
    sentence = result.told()
    assert sentence.startswith("3 paraphrases added; removed:")
    assert all(f"{number} {reason}" in sentence for reason, number in result.removed.items())
    assert f"2 {already}; 1 target got fewer than 2" in sentence


def test_a_paraphrase_keeps_what_its_target_has_and_says_where_it_is_from(tmp_path: Path) -> None:
    told = Told({"you are dumb": ["you are so dumb"], "go away": ["just go away"]})
    new, _ = augment(TRAIN, told.paraphrase, 1, OTHERS, tiny_model())
    assert new == [
        Target("a-p2", "you are so dumb", "rude", 2, "proto-a"),  # a-p1 is taken
        Target("b-p1", "just go away", "rude", 1, "b"),
    ]
    assert [target.origin for target in new] == ["a by rules", "b by rules"]
    write_targets(tmp_path / "new.jsonl", new)
    again = read_targets(tmp_path / "new.jsonl")
    assert again == new
    assert [target.origin for target in again] == ["a by rules", "b by rules"]


@pytest.mark.parametrize(
    ("recipe", "same"),
    [("he-glass-2019", ["you are dumb !", "You ARE dumb..."]), ("he-glass-2020", ["you are dumb!"])],
)
def test_case_and_punctuation_hide_nothing(recipe: str, same: list[str]) -> None:
    model = tiny_model(recipe)
    assert {words_of(model, text) for text in same} == {("you", "are", "dumb")}


@pytest.fixture(scope="module")
def embedded() -> LocalModel:
    return load_embedded("chitchat", "cpu")


def test_the_embedded_list_keeps_its_held_out_targets_unseen(embedded: LocalModel) -> None:
    lists = target_lists(flat_spec(HardenSpec, {"limit": 400}), embedded)
    wide = widen_training(lists, RuleParaphraser(embedded.recipe, 1).paraphrase, 4, embedded)
    assert (wide.selection, wide.held_out) == (lists.selection, lists.held_out)
    assert wide.train[: len(lists.train)] == lists.train
    new = targets_of(wide.train[len(lists.train) :])
    assert wide.augmentation is not None
    assert len(new) == wide.augmentation.added > 2 * len(lists.train)
    others = targets_of([*lists.selection, *lists.held_out])
    unseen = {words_of(embedded, target.text) for target in others}
    said = [words_of(embedded, target.text) for target in targets_of(wide.train)]
    assert unseen.isdisjoint(said)
    assert len({words_of(embedded, target.text) for target in new}) == len(new)
    assert wide.augmentation.removed
    prototypes = {target.prototype for target in targets_of(lists.train)}
    assert {target.prototype for target in new} <= prototypes
    assert len({target.id for target in targets_of(wide.train)}) == len(wide.train)
    assert wide.digest() != lists.digest()
