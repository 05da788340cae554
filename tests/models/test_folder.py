"""A model folder gives back what was saved, and says what is wrong with it when it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from backtalk.data.vocabulary import Vocabulary
from backtalk.errors import InputError
from backtalk.models.folder import (
    TextSettings,
    build_network,
    load_embedded,
    load_folder,
    open_folder,
    save_folder,
    sha256,
    write_card,
)
from backtalk.models.lstm.model import LocalModel
from tests.models.test_contract import WORDS, small_model

CPU = torch.device("cpu")


def save(
    folder: Path,
    model: LocalModel,
    half: bool = False,
    text: TextSettings | None = None,
    words: tuple[str, ...] = WORDS,
) -> Path:
    """The model and its language model, the latter with `words`."""
    assert model.language_model is not None
    digest = save_folder(folder, model.network, model.vocabulary, text or TextSettings(), half)
    write_card(folder, {"sha256": digest})
    lm = save_folder(folder / "lm", model.language_model, Vocabulary(words), TextSettings(), half)
    write_card(folder / "lm", {"sha256": lm})
    return folder


@pytest.fixture
def model() -> LocalModel:
    return small_model(attention=True, pad_as_word=False)


@pytest.mark.parametrize("pad_as_word", [False, True])
@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("layers", [1, 2], ids=["one layer", "two layers, one embedding"])
def test_what_was_saved_is_loaded_exactly(
    tmp_path: Path, attention: bool, pad_as_word: bool, layers: int
) -> None:
    model = small_model(attention, pad_as_word, layers)
    text = TextSettings("he-glass-2020", 9, 11)
    loaded = load_folder(str(save(tmp_path / "m", model, text=text)), "cpu")
    assert loaded.network.config == model.network.config
    assert loaded.vocabulary == model.vocabulary
    assert (loaded.recipe.name, loaded.max_input, loaded.max_output) == ("he-glass-2020", 9, 11)
    assert loaded.language_model is not None
    assert model.language_model is not None
    for own, other in (
        (model.network, loaded.network),
        (model.language_model, loaded.language_model),
    ):
        expected = own.state_dict()
        found = other.state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert not other.training
        assert not any(value.requires_grad for value in other.parameters())


def test_16_bits_are_within_half_precision_and_half_the_size(tmp_path: Path, model: LocalModel) -> None:
    whole = save(tmp_path / "whole", model) / "model.safetensors"
    half = save(tmp_path / "half", model, half=True) / "model.safetensors"
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    loaded = load_folder(str(half.parent), "cpu").network
    for name, value in model.network.named_parameters():
        found = loaded.get_parameter(name)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, value, atol=1e-4, rtol=2**-11)
        assert torch.equal(found, value.half().float())


def test_a_shared_embedding_is_stored_once(tmp_path: Path) -> None:
    model = small_model(attention=True, pad_as_word=False, layers=2)
    folder = save(tmp_path / "m", model)
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert [name for name in file.keys() if "embed" in name] == ["embed_input.weight"]  # noqa: SIM118
    loaded = load_folder(str(folder), "cpu").network
    assert loaded.embed_output is loaded.embed_input


def test_saving_leaves_no_other_files(tmp_path: Path, model: LocalModel) -> None:
    folder = save(tmp_path / "m", model)
    four = {"config.json", "vocab.json", "model.safetensors", "card.json"}
    assert {path.name for path in folder.iterdir()} == {*four, "lm"}
    assert {path.name for path in (folder / "lm").iterdir()} == four
    modes = {path.stat().st_mode for path in folder.iterdir() if path.is_file()}
    assert len(modes) == 1, "who may read the words may read the weights"


def test_the_fingerprint_follows_every_weight(tmp_path: Path, model: LocalModel) -> None:
    first = load_folder(str(save(tmp_path / "a", model)), "cpu").fingerprint
    assert load_folder(str(save(tmp_path / "b", model)), "cpu").fingerprint == first
    assert model.language_model is not None
    with torch.no_grad():
        model.network.output.bias[3] += 1e-3
    second = load_folder(str(save(tmp_path / "c", model)), "cpu").fingerprint
    with torch.no_grad():
        model.language_model.output.bias[3] += 1e-3
    third = load_folder(str(save(tmp_path / "d", model)), "cpu").fingerprint
    assert len({first, second, third}) == 3


def test_a_model_without_a_language_model_loads(tmp_path: Path, model: LocalModel) -> None:
    folder = save(tmp_path / "m", model)
    with_lm = load_folder(str(folder), "cpu").fingerprint
    (folder / "lm" / "card.json").unlink()  # an unfinished one
    loaded = load_folder(str(folder), "cpu")
    assert loaded.language_model is None
    assert loaded.fingerprint != with_lm


def test_a_language_model_of_other_words_is_refused(tmp_path: Path, model: LocalModel) -> None:
    folder = save(tmp_path / "m", model, words=(*WORDS[1:], WORDS[0]))
    with pytest.raises(InputError, match="does not belong to"):
        load_folder(str(folder), "cpu")


def test_a_dialogue_model_is_no_language_model(tmp_path: Path, model: LocalModel) -> None:
    folder = save(tmp_path / "m", model)
    digest = save_folder(folder / "lm", model.network, model.vocabulary, TextSettings())
    write_card(folder / "lm", {"sha256": digest})
    with pytest.raises(InputError, match="does not belong to"):
        load_folder(str(folder), "cpu")


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"format": "other"}, "not a model of ours"),
        ({"kind": "lm"}, "can't be read as a model"),
        ({"sizes": {"vocabulary": 27, "colour": "red"}}, "can't be read as a model"),
        ({"sizes": {"vocabulary": 27, "embedding": 7, "hidden": 12}}, "can't be read as a model"),
        ({"sizes": [1]}, "can't be read as a model"),
        ({"text": {"recipe": "soup"}}, "unknown recipe 'soup'"),
        ({"text": {"flavour": 1}}, "can't be read as a model"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_config_that_does_not_fit_is_an_error(
    tmp_path: Path, model: LocalModel, changes: dict[str, object], phrase: str
) -> None:
    folder = save(tmp_path / "m", model)
    change_config(folder, **changes)
    with pytest.raises(InputError, match=phrase):
        load_folder(str(folder), "cpu")


def test_other_words_than_the_weights_have_rows_for(tmp_path: Path, model: LocalModel) -> None:
    folder = save(tmp_path / "m", model)
    Vocabulary(WORDS[:-1]).save(folder / "vocab.json")
    with pytest.raises(InputError, match="26 words"):
        load_folder(str(folder), "cpu")


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_weights_cut_short_are_an_error_even_with_a_matching_card(
    tmp_path: Path, model: LocalModel, keep: int
) -> None:
    folder = save(tmp_path / "m", model)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(InputError, match="does not match the sha256"):
        load_folder(str(folder), "cpu")
    write_card(folder, {"sha256": sha256(weights)})
    with pytest.raises(InputError, match="can't be read as a model"):
        open_folder(folder, CPU)


def test_missing_weights_are_an_error(tmp_path: Path, model: LocalModel) -> None:
    folder = save(tmp_path / "m", model)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="safetensors is missing"):
        load_folder(str(folder), "cpu")


def test_no_embedded_model_of_that_name() -> None:
    with pytest.raises(InputError, match="is missing"):
        load_embedded("nosuch", "cpu")


def test_kinds_of_networks() -> None:
    sizes = {"vocabulary": 9, "embedding": 3, "hidden": 5}
    assert type(build_network("lm", sizes)).__name__ == "LSTMLanguageModel"
    assert type(build_network("seq2seq", sizes)).__name__ == "Seq2Seq"
