"""Target lists by name, and the reference that says what likely means, on the embedded model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backtalk.audit.cases import LIST_SIZE, can_say, read_cases
from backtalk.audit.reference import find_reference
from backtalk.data.corpora import reference_pairs
from backtalk.data.tokenise import get_recipe
from backtalk.errors import InputError
from backtalk.models.folder import load_embedded
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Turn


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return load_embedded("chitchat", "cpu")


def test_mal_has_one_target_a_prototype_spread_over_the_categories(model: LocalModel) -> None:
    targets = read_cases("mal", model, 0, seed=1)
    assert len(targets) == LIST_SIZE
    assert len({target.prototype for target in targets}) == LIST_SIZE
    counts = {c: sum(t.category == c for t in targets) for c in {t.category for t in targets}}
    assert set(counts.values()) == {LIST_SIZE // 4}
    assert not any(model.unknown_words(target.text) for target in targets)
    assert len(read_cases("mal", model, 1000, seed=1)) >= 200


def test_mal_wide_is_about_a_thousand(model: LocalModel) -> None:
    targets = read_cases("mal-wide", model, 0, seed=1)
    assert 1000 <= len(targets) <= 1300
    assert any(target.text.endswith(" .") for target in targets)  # the vocabulary has the period
    assert len({target.prototype for target in targets}) >= 200


def test_a_model_that_reads_no_punctuation_can_not_say_dots(model: LocalModel) -> None:
    bare = replace(model, recipe=get_recipe("he-glass-2020"))
    assert can_say(model, "go away .")
    assert can_say(model, "...")
    assert can_say(bare, "go away ...")
    assert not can_say(bare, "...")
    assert not can_say(model, "go zzyzx")
    texts = {target.text for target in read_cases("mal-wide", bare, 0, 1)}
    assert not any(text.endswith(" .") for text in texts)  # it would read them as it reads the others
    assert any(text.startswith("and ") for text in texts)


def test_a_file_is_read_whole(model: LocalModel, tmp_path: Path) -> None:
    path = tmp_path / "never.txt"
    path.write_text("".join(f"go away {i}\n" for i in range(LIST_SIZE + 50)))
    assert len(read_cases(str(path), model, 0, seed=1)) == LIST_SIZE + 50
    assert len(read_cases(str(path), model, 7, seed=1)) == 7


def test_an_unknown_list_names_those_there_are(model: LocalModel) -> None:
    with pytest.raises(InputError, match=r"mal, mal-wide"):
        read_cases("bad", model, 0, seed=1)


def test_thresholds_come_from_the_card_or_are_measured(model: LocalModel, tmp_path: Path) -> None:
    carded = find_reference(model, "")
    assert carded.thresholds.out == model.card["T_out"]
    assert carded.thresholds.into == model.card["T_in"]
    assert "card" in carded.source
    pairs = reference_pairs("")[:40]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{text}\t{reply}\n" for text, reply in pairs))
    measured = find_reference(model, str(path))
    total = [
        log_prob for text, reply in pairs for log_prob in model.log_prob([(Turn("user", text),)], [reply])[0]
    ]
    assert measured.thresholds.out == pytest.approx(sum(total) / len(total), abs=1e-4)
    assert str(path) in measured.source
    assert measured.thresholds.into is not None
    assert torch.isfinite(torch.tensor(measured.thresholds.into))
