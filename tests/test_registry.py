"""Names lead to models, and a name that does not says where it should have led."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.errors import InputError
from backtalk.protocols import Service
from backtalk.registry import MODEL_FOLDER, MODELS, Entry, find_model, load_model, resolve, runs_code
from backtalk.types import Access, Name, Origin, Turn
from tests.models.test_contract import small_folder
from tests.talkers import shout


def typed(name: str) -> Name:
    return Name(name, Origin.TYPED)


@pytest.mark.parametrize("entry", [*MODELS.values(), MODEL_FOLDER], ids=lambda entry: entry.path)
def test_every_loader_exists_and_is_explained(entry: Entry) -> None:
    assert callable(resolve(entry.path))
    assert entry.help
    assert entry.access in Access


def test_names_forms_and_folders_are_told_apart(tmp_path: Path) -> None:
    assert find_model("chitchat") == (MODELS["chitchat"], "chitchat")
    assert find_model(typed("py:a.b:c")) == (MODELS["py:"], "a.b:c")
    assert find_model("http://h:1/v1#m") == (MODELS["http://"], "h:1/v1#m")
    assert find_model(typed("sealed:py:a:b")) == (MODELS["sealed:"], "py:a:b")
    assert find_model(str(tmp_path)) == (MODEL_FOLDER, str(tmp_path))


def test_a_known_name_wins_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chitchat").mkdir()
    assert find_model("chitchat")[0] == MODELS["chitchat"]
    assert find_model("./chitchat")[0] == MODEL_FOLDER


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("chitcaht", "unknown model 'chitcaht'; did you mean 'chitchat'?"),
        ("zzz", "unknown model 'zzz'; known: chitchat, gguf/, hf/, http://, https://, py:, sealed:, smollm2"),
        ("no/such/folder", "no model folder at 'no/such/folder'; train one with"),
        ("./nothing", "no model folder at './nothing'"),
        ("", "name a model"),
        ("  ", "name a model"),
    ],
)
def test_unknown_names(name: str, phrase: str) -> None:
    with pytest.raises(InputError) as caught:
        find_model(name)
    assert phrase in str(caught.value)


def test_a_sealed_model_says_the_same_and_shows_no_more(tmp_path: Path) -> None:
    open_model = small_folder(tmp_path)
    sealed = load_model(f"sealed:{tmp_path}", "cpu")
    dialogues = [(Turn("user", text),) for text in ("you go", "stop")]
    assert sealed.reply(dialogues) == open_model.reply(dialogues)
    assert sealed.access == Access.TEXT
    assert not hasattr(sealed, "log_prob")
    assert sealed.name == f"sealed:{tmp_path}"
    assert sealed.fingerprint == f"sealed:{open_model.fingerprint}"


def test_a_sealed_model_costs_what_the_open_one_costs(tmp_path: Path) -> None:
    small_folder(tmp_path)
    assert not isinstance(load_model(f"sealed:{tmp_path}", "cpu"), Service)
    assert isinstance(load_model(typed("sealed:py:tests.talkers:shout")), Service)


def test_a_function_by_its_name() -> None:
    model = load_model(typed("py:tests.talkers:shout"))
    assert (
        model.reply([(Turn("user", "quiet"),)]) == [shout([{"role": "user", "text": "quiet"}])] == ["QUIET"]
    )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("py:a:b", True),
        ("sealed:py:a:b", True),
        ("sealed:sealed:py:a:b", True),
        ("chitchat", False),
        ("pypy", False),
    ],
)
def test_names_that_run_code_are_known(name: str, code: bool) -> None:
    assert runs_code(name) is code
