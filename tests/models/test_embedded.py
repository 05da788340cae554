"""The model that ships: what its card says is so, and its recipe is the committed one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import backtalk
from backtalk.cli.config import read_yaml
from backtalk.data.corpora import reference_pairs
from backtalk.data.pairs import prepare
from backtalk.models.folder import load_embedded
from backtalk.models.lstm.model import LocalModel
from backtalk.specs import build_spec, identity_values, spec_values
from backtalk.specs.train import TrainSpec
from backtalk.training.mle import mean_log_likelihood, perplexity
from backtalk.types import Turn

FOLDER = Path(backtalk.__file__).parent / "embedded" / "chitchat"
RECIPE = Path(__file__).parent.parent.parent / "recipes" / "chitchat.yaml"
TWELVE_MB = 12_000_000


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return load_embedded("chitchat", "cpu")


def test_it_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= TWELVE_MB
    assert "MIT" in (FOLDER / "NOTICE").read_text()


def test_its_recipe_is_the_committed_one(model: LocalModel) -> None:
    """What a card does not name, as options that came later, has its default."""
    spec = build_spec(TrainSpec, read_yaml(RECIPE), str(RECIPE))
    facts = identity_values(spec)
    for card in (model.card, json.loads((FOLDER / "lm" / "card.json").read_text())):
        rebuilt = spec_values(build_spec(TrainSpec, card["spec"], "card"))
        assert {key: rebuilt[key] for key in facts} == facts
        assert card["spec"].keys() <= facts.keys()


def test_its_perplexity_is_what_the_card_says_and_below_the_language_models(model: LocalModel) -> None:
    """Measured on the test pairs that `backtalk train` sets aside; a fifth of them is enough here."""
    prepared = prepare(build_spec(TrainSpec, read_yaml(RECIPE), str(RECIPE)))
    assert prepared.vocabulary == model.vocabulary
    assert len(prepared.test.replies) == model.card["pairs"]["test"]
    test = prepared.test._replace(inputs=prepared.test.inputs[::5], replies=prepared.test.replies[::5])
    assert model.language_model is not None
    ours = mean_log_likelihood(model.network, test, torch.device("cpu"))
    theirs = mean_log_likelihood(model.language_model, test, torch.device("cpu"))
    assert perplexity(ours) == pytest.approx(model.card["test_perplexity"], rel=0.05)
    assert perplexity(theirs) == pytest.approx(model.card["language_model_test_perplexity"], rel=0.05)
    assert ours > theirs
    assert model.card["T_out"] > model.card["T_in"]


def test_its_samples_are_consecutive_test_inputs_with_what_it_really_says(model: LocalModel) -> None:
    samples = model.card["samples"]
    assert len(samples) == 20
    assert [sample["input"] for sample in samples] == [text for text, _ in reference_pairs("")[:20]]
    dialogues = [(Turn("user", sample["input"]),) for sample in samples]
    assert model.reply(dialogues) == [sample["greedy"] for sample in samples]
    # The card was written on a GPU: a draw that falls within its rounding may pick the word beside.
    said = model.sample(dialogues, range(20))
    assert sum(a == sample["sampled"] for a, sample in zip(said, samples, strict=True)) >= 18
