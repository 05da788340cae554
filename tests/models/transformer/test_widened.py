"""A network with weights in 16 bits that computes in float32."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backtalk.models.transformer.model import TransformerModel
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.types import Turn
from tests.models.transformer.test_weights import TARGETS, goals, make, random_ids
from tests.models.transformer.tiny import CHATML

pytestmark = pytest.mark.usefixtures("one_thread")
CAUSAL = ("gpt2", "llama")
DIALOGUES = [(Turn("user", text),) for text in ("hello there", "who are you", "stop it")]


def both(folder: Path, kind: str) -> tuple[TransformerModel, TransformerModel]:
    """A model with rounded weights, widened, and the same weights in a float32 network."""
    rounded = make(folder, kind, CHATML if kind == "llama" else "", dtype="bfloat16")
    return rounded.widened(), replace(rounded, network=deepcopy(rounded.network).float())


@pytest.mark.parametrize("kind", CAUSAL)
def test_numbers_are_those_of_a_float32_network(tmp_path: Path, kind: str) -> None:
    model, exact = both(tmp_path, kind)
    inputs, targets, candidates = random_ids(model, 3, 5), goals(model), random_ids(model, 3, 6)
    torch.testing.assert_close(model.score(inputs, targets), exact.score(inputs, targets))
    assert model.score(inputs, targets).log_probs.dtype == torch.float32
    for position in (0, 3):
        given = inputs, position, candidates, targets
        found, plain = model.score_substitutions(*given), exact.score_substitutions(*given)
        torch.testing.assert_close(found.log_probs, plain.log_probs, atol=1e-4, rtol=1e-4)
    assert model.reply(DIALOGUES) == exact.reply(DIALOGUES)
    for own, plain_row in zip(
        model.log_prob(DIALOGUES, TARGETS), exact.log_prob(DIALOGUES, TARGETS), strict=True
    ):
        assert own == pytest.approx(plain_row, abs=1e-5)
    if model.language_model is not None and exact.language_model is not None:
        torch.testing.assert_close(model.language_model.score(inputs), exact.language_model.score(inputs))


@pytest.mark.parametrize("kind", CAUSAL)
def test_weights_are_shared_and_stay_in_16_bits(tmp_path: Path, kind: str) -> None:
    model, _ = both(tmp_path, kind)
    narrow = model.narrow
    assert narrow is not None
    assert model.widened() is model
    assert model.read_as["dtype"] == "bfloat16"
    before = {name: value.clone() for name, value in narrow.network.state_dict().items()}
    inputs, targets = random_ids(model, 3, 5), goals(model)
    weights = torch.ones(targets.shape)
    model.score(inputs, targets)
    assert torch.equal(model.gradient(inputs, targets, weights), narrow.gradient(inputs, targets, weights))
    assert model.draft() is narrow
    pairs = zip(model.network.parameters(), narrow.network.parameters(), strict=True)
    assert all(own.data_ptr() == other.data_ptr() for own, other in pairs)
    assert all(torch.equal(value, before[name]) for name, value in narrow.network.state_dict().items())


def test_weights_are_restored_after_an_error(tmp_path: Path) -> None:
    model, _ = both(tmp_path, "llama")
    with pytest.raises(RuntimeError):
        model.network.lm_head(torch.zeros(1, 3))
    assert model.network.lm_head.weight.dtype == torch.bfloat16


def test_a_search_decides_in_float32(tmp_path: Path) -> None:
    model, exact = both(tmp_path, "llama")
    goal, objective = model.encode_target("no"), Objective(False, False, -14.0, total=True)
    search = Gibbs(length=3, top=12, sweeps=2, precision="bfloat16")
    (found,) = search.run(model, objective, [goal], [1])
    plain = exact.score(torch.tensor([found.ids]), torch.tensor([goal])).log_probs.sum()
    assert found.loss == pytest.approx(-float(plain), abs=1e-4)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_encoder_decoders_stay_as_they_are(tmp_path: Path, kind: str) -> None:
    model = make(tmp_path, kind, dtype="bfloat16")
    assert model.widened() is model
