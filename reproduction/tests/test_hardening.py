"""The curve of hardening: its parts, and all of it in miniature on the embedded model."""

import json
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pytest

from backtalk.hardening.subjects.lstm import DEFAULT
from backtalk.specs.harden import check_spec
from backtalk.training.negative import NegativeConfig
from reproduction.__main__ import run_command as run
from reproduction.hardenings import PAPER_SETTINGS, harden_spec
from reproduction.own.hardening import CURVE, DEFAULTS, FAMILIES, SIZES, hardening_parts
from reproduction.page import rounded
from reproduction.runner import keys_of
from reproduction.spec import StudySpec
from reproduction.tests.miniature import without_corpus


def test_the_papers_settings_are_fields_of_the_config() -> None:
    names = {field.name for field in fields(NegativeConfig)} | {"escalate"}
    assert all(settings.keys() <= names for settings in PAPER_SETTINGS.values())
    paper = PAPER_SETTINGS["switchboard"]
    assert (paper["lr"], paper["lambda_pos"], paper["mean_over"]) == (0.01, 1.0, "words")


def test_every_point_is_a_hardening_and_has_a_family() -> None:
    parts = {part.name: part for part in hardening_parts(StudySpec(data="embedded"), SIZES["paper"], Path())}
    assert set(parts) == {*(f"curve-{name}" for name in CURVE), *DEFAULTS}
    for name, over in CURVE.items():
        check_spec(harden_spec(over, name))
        assert name.split("-")[0] in FAMILIES
    assert parts["default"].settings["seed"] != parts["curve-published"].settings["seed"]
    assert {parts[name].settings["seed"] for name in DEFAULTS} == {1, 2}


@pytest.mark.parametrize(("what", "value"), [("kl", 7.0), ("margin", 2.0)])
def test_other_defaults_are_another_result_where_nothing_is_set_over_them(
    what: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys_of(hardening_parts(StudySpec(data="embedded"), SIZES["paper"], Path()))
    monkeypatch.setitem(DEFAULT, what, value)
    after = keys_of(hardening_parts(StudySpec(data="embedded"), SIZES["paper"], Path()))
    set_over = {f"curve-{name}" for name, over in CURVE.items() if what in over or "settings" in over}
    assert {name for name in before if before[name] == after[name]} == set_over
    assert 0 < len(set_over) < len(before) - 1


def test_in_miniature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_corpus(monkeypatch)
    out, page = tmp_path / "study", tmp_path / "docs" / "hardening.md"
    command = ["hardening", "--data", "embedded", "--size", "mini", "--out", str(out)]
    assert run([*command, "--page", str(page), "--device", "cpu"]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Not run" not in text
    assert "| published |" in text
    assert "| held-out, gibbs (3 words, G=4, 1 sweep, 10 starts) |" in text
    ElementTree.parse(tmp_path / "docs" / "hardening" / "curve.svg")
    parts = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["parts"]
    result = parts["curve-npo-kl-3"]["result"]
    stored = json.loads((out / "hardenings" / "curve-npo-kl-3" / "summary.json").read_text(encoding="utf-8"))
    assert result["held_out"] == rounded(stored["held_out"])
    assert result["candidates"][0]["iterations"] == 0
    assert {row["search"] for row in parts["default"]["result"]["proof"]} >= {"gibbs", "gcg"}
    capsys.readouterr()
    assert run(command) == 0  # nothing is run again
    assert "..." not in capsys.readouterr().err


def test_other_data_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardening", "--data", "somewhere", "--out", str(tmp_path / "s")]) == 2
    assert "--data embedded" in capsys.readouterr().err
