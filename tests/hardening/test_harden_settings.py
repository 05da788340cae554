"""The settings of `backtalk harden`: a config for each method, and parts that only some hardenings have."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from backtalk import registry
from backtalk.cli import run
from backtalk.cli.config import read_yaml
from backtalk.errors import InputError
from backtalk.hardening.subjects.lstm import lstm_config
from backtalk.models.folder import load_embedded
from backtalk.registry import METHODS, method_config
from backtalk.specs import build_spec, chosen, command_of, flag_names, flat_spec, spec_values
from backtalk.specs.harden import (
    PARTS,
    HardenSpec,
    applied_values,
    check_spec,
    parts_of,
    stored_values,
)
from tests.brought import Gentle

LINES, COLUMNS = 45, 80


def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *flags: str) -> str:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    with pytest.raises(SystemExit) as left:
        run(["harden", *flags, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_help_is_short_and_names_every_method(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of(capsys, monkeypatch).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    for name in METHODS:
        assert any(line.split()[:1] == [name] for line in lines)
    flags = {line.split()[0] for line in lines if line.startswith("  --")}
    for part in PARTS.values():
        assert not flags & {f"--{name.replace('_', '-')}" for name in flag_names(part)}


@pytest.mark.parametrize(
    ("said", "shown", "hidden"),
    [
        (["--method", "npo"], ["--beta"], ["--gan-lr", "--targets"]),
        (["--method", "gan", "--against", "frequent"], ["--gan-lr", "--steps-per-iteration"], ["--targets"]),
        (["--against", "frequent"], ["--r-thres", "--steps-per-iteration"], ["--targets", "--rank"]),
        (["--against", "targets"], ["--targets", "--augment", "--length"], ["--r-thres", "--rank"]),
        (["--model", "hf/x"], ["--targets", "--findings", "--rank", "--template"], ["--length", "--r-thres"]),
    ],
)
def test_what_is_said_adds_its_flags(
    said: list[str],
    shown: list[str],
    hidden: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = help_of(capsys, monkeypatch, *said)
    for flag in shown:
        assert f"  {flag}" in text
    for flag in hidden:
        assert f"  {flag}" not in text


@pytest.mark.parametrize(
    ("flags", "owner"),
    [
        (["--beta", "0.2"], "--method npo"),
        (["--method", "npo", "--gan-lr", "0.1"], "--method gan"),
        (["--r-thres", "3%"], "--against frequent"),
        (["--against", "frequent", "--augment", "2"], "--against targets"),
        (["--merge"], "Hugging Face models"),
        (["--prefix", "please"], "Hugging Face models"),
        (["--model", "hf/x", "--steps-per-iteration", "3"], "--against frequent"),
    ],
)
def test_a_flag_of_something_else_says_whose_it_is(
    flags: list[str], owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["harden", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"belongs to {owner}" in line or owner in line


def test_no_setting_is_in_two_places() -> None:
    kinds: list[type[Any]] = [
        HardenSpec,
        *PARTS.values(),
        *map(method_config, METHODS),
    ]
    names = [field.name for kind in kinds for field in fields(kind)]
    assert len(names) == len(set(names))


def test_a_file_nests_as_the_spec_does(tmp_path: Path) -> None:
    spec = flat_spec(
        HardenSpec, {"method": "npo", "beta": 0.3, "targets": "mine.txt", "length": 3, "kl": "2"}
    )
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(stored_values(spec)))
    read = read_yaml(file)
    assert read["method"] == {"name": "npo", "beta": 0.3}
    assert read["sentences"]["targets"] == "mine.txt"
    assert "frequent" not in read
    assert build_spec(HardenSpec, read, "spec.yaml") == spec
    assert build_spec(HardenSpec, {"method": "npo"}, "spec.yaml") == HardenSpec(method="npo")
    with pytest.raises(InputError, match="beta belongs to --method npo"):
        build_spec(HardenSpec, {"method": {"name": "negative", "beta": 1}}, "spec.yaml")


def test_settings_of_a_file_that_do_not_apply_are_refused() -> None:
    check_spec(flat_spec(HardenSpec, {"against": "frequent", "window": 3}))
    for values, whose in (
        ({"r_thres": "3%"}, "--r-thres belongs to --against frequent"),
        ({"rank": 3}, "--rank belongs to Hugging Face models"),
        ({"against": "frequent", "method": "gan", "r_thres": "3%"}, "a method that counts replies"),
        ({"against": "frequent", "hit": "contains"}, "--hit belongs to --against targets"),
        ({"model": "hf/x", "top": 3}, "--top belongs to models of ours"),
        ({"model": "hf/x", "against": "frequent"}, "models of ours"),
        ({"method": "gan"}, "knows no targets"),
    ):
        with pytest.raises(InputError, match=whose):
            check_spec(flat_spec(HardenSpec, values))


def test_what_changes_no_result_is_no_part_of_the_identity() -> None:
    values = {"model": "hf/x", "findings": "run", "rank": 4}
    free = {"out": "there", "device": "cuda", "max_time": "1h", "checkpoint_s": 0.0, "audits": False,
            "micro_tokens": 64}  # fmt: skip
    known = applied_values(flat_spec(HardenSpec, values))
    assert applied_values(flat_spec(HardenSpec, {**values, **free})) == known
    assert applied_values(flat_spec(HardenSpec, {**values, "alpha": 1.0})) != known
    assert not {"window", "length", *free} & known.keys()


@pytest.mark.parametrize(
    "values",
    [
        {"model": "mine", "targets": "a b.txt", "augment": 2, "audits": False, "method": "npo", "beta": 0.2},
        {"against": "frequent", "method": "gan", "gan_lr": 0.01, "steps_per_iteration": 8},
        {"model": "hf/x", "findings": "run", "template": "chat", "merge": True},
    ],
)
def test_the_command_of_a_spec_says_it_again(values: dict[str, object]) -> None:
    spec = flat_spec(HardenSpec, values)
    command = command_of(spec_values(spec), chosen(spec), "harden")
    for name, value in values.items():
        flag = f"--no-{name}" if value is False else f"--{name.replace('_', '-')}"
        assert flag in command


def test_a_method_of_another_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = EntryPoint("gentle", "tests.brought:Gentle", "backtalk.methods")
    monkeypatch.setattr(registry, "plugins", lambda group: {"gentle": point} if group == "methods" else {})
    assert "gentle" in help_of(capsys, monkeypatch)
    assert "--force X" in help_of(capsys, monkeypatch, "--method", "gentle")
    spec = flat_spec(HardenSpec, {"method": "gentle", "force": 0.2})
    check_spec(spec)
    assert lstm_config(spec, load_embedded("chitchat", "cpu"), []).method == Gentle(0.2)
    assert applied_values(spec)["force"] == 0.2
    assert "frequent" in parts_of("chitchat", "frequent")
    with pytest.raises(InputError, match="unknown method 'gentl'; did you mean 'gentle'"):
        method_config("gentl")
