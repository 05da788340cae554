"""gibbs, gcg, beam and random on Hugging Face models small enough to try every input."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import search_config
from backtalk.searches.beam import Beam
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.random import Random
from backtalk.specs import ModelOptions
from tests.models.transformer.plain import plain_scores
from tests.models.transformer.tiny import CHATML, make_folder, make_network
from tests.searches.planted import WORDS

pytestmark = pytest.mark.usefixtures("one_thread")

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
FIRST = len(SPECIAL)
GREEDY = Objective(greedy=True, average=False, enough_out=-1.0)
MIN = Objective(greedy=False, average=False, enough_out=-0.5)
LIKELY = Objective(greedy=False, average=False, enough_out=-0.5, enough_in=-3.0)
TARGETS = ("stop dog", "go go two", "rain")


def build(folder: Path, kind: str, **options: Any) -> TransformerModel:
    """Twelve words, each a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    hf: Any = import_module("transformers")  # its types are partial
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    core: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer: Any = hf.PreTrainedTokenizerFast(tokenizer_object=core, **names)
    make_network(kind, len(vocabulary)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load(str(folder), "cpu", ModelOptions(max_reply=5, **options))


@pytest.fixture(scope="module", params=["gpt2", "llama", "t5", "bart"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TransformerModel:
    return build(tmp_path_factory.mktemp("words"), request.param, prefix="one two ", suffix=" sun")


def loss_of(model: TransformerModel, objective: Objective, inputs: Tensor, target: list[int]) -> Tensor:
    goals = torch.tensor([target]).expand(len(inputs), -1)
    loss = objective.output_loss(model.score(inputs, goals), goals != model.pad)
    if objective.enough_in is not None and model.language_model is not None:
        loss = loss + objective.input_loss(model.language_model.score(inputs))
    return loss


def test_the_words_of_the_test_are_all_that_may_be_said(model: TransformerModel) -> None:
    assert model.searchable().nonzero().squeeze(1).tolist() == list(range(FIRST, FIRST + 12))
    assert model.unknown_words("stop zebra go") == ["zebra"]


@pytest.mark.parametrize(("how", "share"), [({}, 0.5), ({"branches": 0.25}, 0.25), ({"branches": 1.0}, 1.0)])
@pytest.mark.parametrize("search", [Gibbs, Gcg])
def test_gradients_are_damped_by_the_share_of_the_search(
    search: type[Gibbs | Gcg], how: dict[str, Any], share: float, tmp_path: Path, monkeypatch: Any
) -> None:
    model, seen = build(tmp_path, "llama"), set[float]()
    whole = TransformerModel.gradient

    def noted(self: TransformerModel, *given: Any) -> Tensor:
        seen.add(given[-1])
        return whole(self, *given)

    monkeypatch.setattr(TransformerModel, "gradient", noted)
    search(2, 3, 1, **how).run(model, MIN, [model.encode_target("go")], [1])
    assert seen == {share}


@pytest.mark.parametrize("search", [Gibbs, Gcg])
@pytest.mark.parametrize("objective", [GREEDY, MIN, LIKELY], ids=["greedy", "min", "io"])
def test_the_best_of_all_inputs_is_found(
    model: TransformerModel, search: type[Gibbs | Gcg], objective: Objective
) -> None:
    if objective.enough_in is not None and model.language_model is None:
        pytest.skip("an encoder-decoder model is no language model")
    if search is Gcg and model.network.config.model_type in ("llama", "bart"):
        pytest.skip("nothing of it depends on more than causal or not")
    targets = [model.encode_target(text) for text in TARGETS]
    for length in (1, 2):
        every = torch.tensor(list(product(range(FIRST, FIRST + 12), repeat=length)))
        rows = [target for target in targets for _ in range(24)]
        found = search(length, top=12, sweeps=6).run(model, objective, rows, list(range(24)) * len(targets))
        for place, target in enumerate(targets):
            best = min(one.loss for one in found[24 * place : 24 * place + 24])
            expected = float(loss_of(model, objective, every, target).min())
            assert best == pytest.approx(expected, abs=1e-4)


def test_gibbs_ends_where_no_single_word_is_better(model: TransformerModel) -> None:
    """With G = V and sweeps to spare it ends in a local optimum, by a plain forward pass."""
    target = model.encode_target("go go two")
    for one in Gibbs(3, top=12, sweeps=30).run(model, MIN, [target] * 4, [1, 2, 3, 4]):
        plain, _ = plain_scores(model, one.ids, target)
        own = sum(-value for value in plain if value < MIN.enough_out) / len(target)
        assert one.loss == pytest.approx(own, abs=1e-4)
        neighbours = [
            [*one.ids[:place], word, *one.ids[place + 1 :]]
            for place in range(3)
            for word in range(FIRST, FIRST + 12)
        ]
        losses = loss_of(model, MIN, torch.tensor(neighbours), target)
        assert float(losses.min()) >= one.loss - 1e-4


def test_the_best_of_three_words_is_found_from_some_start(model: TransformerModel) -> None:
    every = torch.tensor(list(product(range(FIRST, FIRST + 12), repeat=3)))
    target = model.encode_target("stop dog")
    found = Gibbs(3, top=12, sweeps=20).run(model, MIN, [target] * 40, list(range(40)))
    expected = float(loss_of(model, MIN, every, target).min())
    assert min(one.loss for one in found) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["gibbs", "gcg", "beam", "random"])
def test_a_row_ends_alike_alone_and_with_others_and_counts_its_cost(name: str, tmp_path: Path) -> None:
    model = build(tmp_path, "llama", prefix="one two ")
    search = search_config(name)(4, top=6, sweeps=2)
    targets = [model.encode_target(text) for text in TARGETS]
    together = search.run(model, LIKELY, targets, [7, 8, 9])
    again = search.run(model, LIKELY, targets, [7, 8, 9])
    alone = [search.run(model, LIKELY, [target], [7 + row])[0] for row, target in enumerate(targets)]
    assert [one.ids for one in together] == [one.ids for one in again] == [one.ids for one in alone]
    for one in together:
        assert 0 < one.candidates <= search.most_candidates
        assert one.scores["forward_tokens"] > one.candidates  # each candidate is some tokens
        assert one.loss_by_sweep[-1] == one.loss


@pytest.mark.parametrize("name", ["gibbs", "gcg", "beam", "random"])
@pytest.mark.parametrize("objective", [MIN, LIKELY], ids=["o", "io"])
def test_what_is_found_can_be_typed(name: str, objective: Objective, tmp_path: Path) -> None:
    """With pieces of words, which grow together in most rows of them."""
    options = ModelOptions(max_reply=8, prefix="please ")
    model = load(str(make_folder(tmp_path, "gpt2", CHATML)), "cpu", options)
    search = search_config(name)(6, top=8, sweeps=3)
    targets = [model.encode_target(text) for text in ("no", "you are rude", "leave me")]
    found = search.run(model, objective, targets, [1, 2, 3])
    for one, target in zip(found, targets, strict=True):
        assert len(one.ids) == 6
        assert tuple(model.encode_input(model.decode(one.ids))) == one.ids
        plain, _ = plain_scores(model, one.ids, target)
        if objective is MIN:
            own = sum(-value for value in plain if value < MIN.enough_out) / len(target)
            assert one.loss == pytest.approx(own, abs=1e-4)
    if name in ("gibbs", "gcg"):
        assert sum(one.loss for one in found) < sum(one.loss_by_sweep[0] for one in found)


def test_beam_finds_likely_inputs_alone(tmp_path: Path) -> None:
    model = build(tmp_path, "llama")
    assert model.language_model is not None
    every = torch.tensor(list(product(range(FIRST, FIRST + 12), repeat=3)))
    means = model.language_model.score(every).mean(1)
    threshold = float(means.sort(descending=True).values[60])  # 60 of 1,728 are above it
    objective = Objective(greedy=False, average=False, enough_out=-0.5, enough_in=threshold)
    targets = [model.encode_target(text) for text in TARGETS]
    found = Beam(3, top=16, sweeps=4).run(model, objective, targets, [1, 2, 3])
    for one, target in zip(found, targets, strict=True):
        mean = float(model.language_model.score(torch.tensor([one.ids])).mean())
        assert mean > threshold
        likely = loss_of(model, objective, every[means > threshold], target)
        chance = float(likely.sort().values[30])  # half of those that are allowed are worse
        assert one.loss <= chance


def test_beam_takes_the_best_of_what_it_may_write(tmp_path: Path) -> None:
    """With as many continuations as there are words, and all of them kept, nothing is left out."""
    model = build(tmp_path, "gpt2")
    every = torch.tensor(list(product(range(FIRST, FIRST + 12), repeat=2)))
    target = model.encode_target("stop dog")
    (found,) = Beam(2, top=200, sweeps=200).run(model, MIN, [target], [1])
    assert found.loss == pytest.approx(float(loss_of(model, MIN, every, target).min()), abs=1e-4)


def test_beam_needs_a_language_model(tmp_path: Path) -> None:
    model = build(tmp_path, "t5")
    with pytest.raises(InputError, match="'beam'"):
        Beam(2, 4, 1).run(model, MIN, [model.encode_target("rain")], [1])


def test_a_strict_objective_never_gives_a_likely_input_up(tmp_path: Path) -> None:
    model = build(tmp_path, "llama")
    assert model.language_model is not None
    every = torch.tensor(list(product(range(FIRST, FIRST + 12), repeat=3)))
    threshold = float(model.language_model.score(every).mean(1).sort(descending=True).values[100])
    targets = [model.encode_target(text) for text in TARGETS] * 4
    means = {}
    for strict in (False, True):
        objective = Objective(False, False, -0.1, threshold, lambda_in=0.01, strict=strict)
        found = Gibbs(3, 12, 10).run(model, objective, targets, list(range(12)))
        means[strict] = model.language_model.score(torch.tensor([one.ids for one in found])).mean(1)
    assert (means[True] > threshold).all()
    assert not (means[False] > threshold).all()  # so small a penalty does not hold them


def test_chance_is_beaten_at_equal_candidates(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "llama", CHATML)), "cpu", ModelOptions(max_reply=8))
    targets = [model.encode_target(text) for text in ("no", "you are rude", "leave me", "cats", "rain")] * 2
    seeds = list(range(10))
    chance = Random(5, top=12, sweeps=3).run(model, MIN, targets, seeds)
    for search in (Gibbs(5, top=12, sweeps=3), Gcg(5, top=12, sweeps=3)):
        ours = search.run(model, MIN, targets, seeds)
        assert sum(a.loss < b.loss for a, b in zip(ours, chance, strict=True)) >= 8


def test_a_draft_ranks_and_the_model_decides(tmp_path: Path) -> None:
    model = build(tmp_path, "llama", prefix="one two ")
    targets = [model.encode_target(text) for text in TARGETS]
    for kind in (Gibbs, Gcg):
        search = kind(3, top=12, sweeps=6, precision="bfloat16")
        for one, target in zip(search.run(model, MIN, targets, [1, 2, 3]), targets, strict=True):
            plain, _ = plain_scores(model, one.ids, target)
            own = sum(-value for value in plain if value < MIN.enough_out) / len(target)
            assert one.loss == pytest.approx(own, abs=1e-4)
