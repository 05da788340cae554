"""A spec is the flags, the YAML keys and the help at once."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from backtalk.cli import build_parser
from backtalk.cli.config import read_yaml, spec_from
from backtalk.cli.parser import add_flags, field_help
from backtalk.errors import InputError
from backtalk.registry import SEARCHES, search_config
from backtalk.specs import (
    ModelOptions,
    Range,
    build_spec,
    chosen,
    command_of,
    flag_names,
    flat_spec,
    identity_values,
    spec_values,
)
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import Sentences
from backtalk.specs.train import TrainSpec


@dataclass(frozen=True)
class Tea:
    """A spec of each kind of field."""

    leaf: str = "green"
    """Which leaf; 100% of the
    taste."""
    cups: Annotated[int, Range(0, 100)] = 2
    """How many."""
    minutes: Annotated[float, Range(0, 60)] = 3.5
    """How long."""
    milk: bool = False
    """With milk."""
    size: Literal["small", "large"] = "small"
    """Of the cup."""


def test_values_become_what_their_fields_say() -> None:
    made = build_spec(Tea, {"leaf": 7, "cups": "3", "minutes": "1e1", "milk": True, "size": "large"}, "here")
    assert made == Tea("7", 3, 10.0, True, "large")
    assert build_spec(Tea, {}, "here") == Tea()
    assert build_spec(Tea, {"cups": 4.0, "minutes": 4}, "here") == Tea(cups=4, minutes=4.0)
    assert spec_values(made) == {"leaf": "7", "cups": 3, "minutes": 10.0, "milk": True, "size": "large"}


@pytest.mark.parametrize("key", ["checkpoint-s", "checkpoint_s"])
def test_keys_may_be_written_with_either_stroke(key: str) -> None:
    assert build_spec(TrainSpec, {key: 5}, "here").checkpoint_s == 5.0


@pytest.mark.parametrize(
    ("values", "phrase"),
    [
        ({"leef": "x"}, "here: unknown key 'leef'; did you mean 'leaf'?"),
        ({5: "x"}, "here: unknown key '5'; known: cups, leaf, milk, minutes, size"),
        ({"cups": "two"}, "here: cups should be a whole number, not 'two'"),
        ({"cups": "2.5"}, "here: cups should be a whole number, not '2.5'"),
        ({"cups": 2.5}, "here: cups should be a whole number, not 2.5"),
        ({"cups": float("inf")}, "here: cups should be a whole number, not inf"),
        ({"cups": float("nan")}, "here: cups should be a whole number, not nan"),
        ({"cups": -1}, "here: cups should not be -1"),
        ({"cups": True}, "here: cups should be a number, not True"),
        ({"cups": [1]}, "here: cups should be a whole number, not [1]"),
        ({"cups": None}, "here: cups should be a whole number, not None"),
        ({"minutes": "long"}, "here: minutes should be a number, not 'long'"),
        ({"minutes": "nan"}, "here: minutes should not be nan"),
        ({"minutes": float("nan")}, "here: minutes should not be nan"),
        ({"minutes": "inf"}, "here: minutes should not be inf"),
        ({"minutes": -0.5}, "here: minutes should not be -0.5"),
        ({"milk": "yes"}, "here: milk should be true or false, not 'yes'"),
        ({"milk": 1}, "here: milk should be true or false, not 1"),
        ({"size": "larg"}, "here: size: unknown value 'larg'; did you mean 'large'?"),
        ({"size": ["large"]}, "here: size: unknown value"),
        ({"leaf": None}, "here: leaf should be text, not None"),
        ({"leaf": True}, "here: leaf should be text, not True; put it in quotes"),
        ({"leaf": ["a"]}, "here: leaf should be text, not ['a']"),
        ({"leaf": {"a": 1}}, "here: leaf should be text"),
    ],
    ids=str,
)
def test_bad_values_name_the_place_and_the_mend(values: dict[Any, Any], phrase: str) -> None:
    with pytest.raises(InputError) as caught:
        build_spec(Tea, values, "here")
    assert phrase in str(caught.value)


def test_a_choice_that_may_be_left_empty_is_listed_without_it() -> None:
    with pytest.raises(InputError, match="'nothing'; known: frequent, none, paper"):
        build_spec(Sentences, {"avoid": "nothing"}, "here")
    parser = argparse.ArgumentParser()
    add_flags(parser, Sentences)
    assert "--avoid paper|frequent|none" in parser.format_help()


def test_the_sentence_under_a_field_is_its_help() -> None:
    assert field_help(Tea) == {
        "leaf": "Which leaf; 100% of the taste.",
        "cups": "How many.",
        "minutes": "How long.",
        "milk": "With milk.",
        "size": "Of the cup.",
    }


def test_every_field_of_training_has_its_sentence() -> None:
    assert field_help(TrainSpec).keys() == {field.name for field in fields(TrainSpec)}


def test_flags_that_were_not_given_are_left_out() -> None:
    parser = argparse.ArgumentParser(prog="tea")
    add_flags(parser, Tea)
    assert vars(parser.parse_args([])) == {}
    given = parser.parse_args(["--cups", "5", "--milk", "--size", "large", "--leaf", "black"])
    assert build_spec(Tea, vars(given), "flags") == Tea("black", 5, 3.5, True, "large")
    assert vars(parser.parse_args(["--no-milk"])) == {"milk": False}
    text = " ".join(parser.format_help().split())
    assert "Which leaf; 100% of the taste. [green]" in text
    assert "--size small|large Of the cup. [small]" in text
    assert "With milk. [off]" in text


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        (b"", "should hold `key: value` lines"),
        (b"- a\n- b\n", "should hold `key: value` lines"),
        (b"just words", "should hold `key: value` lines"),
        (b"a: [1", "is not valid YAML"),
        (b"a: b: c\n  d", "is not valid YAML"),
        (b"name: 2024-13-45\n", "is not valid YAML"),
        (b"a: \xff\xfe\n", "can't be read as a spec"),
        (b"a: \x00\n", "is not valid YAML"),
        (b"a: !!python/object/apply:os.getcwd []\n", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_spec_is_one_sentence(tmp_path: Path, content: bytes, phrase: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_yaml(path)
    assert phrase in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no spec file at"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="can't be read as a spec"):
        read_yaml(tmp_path)


def test_yaml_values_keep_their_types(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("leaf: Grün\ncups: 3\nminutes: 2\nmilk: true\n", encoding="utf-8")
    assert build_spec(Tea, read_yaml(path), "file") == Tea("Grün", 3, 2.0, True)


def test_every_field_of_the_model_options_has_a_sentence() -> None:
    assert field_help(ModelOptions).keys() == {field.name for field in fields(ModelOptions)}


# The settings of an audit: its own, those of the search and those of a Hugging Face model


def audit_spec(*argv: str) -> AuditSpec:
    """The spec of a command line."""
    return spec_from(build_parser().parse_args(["audit", *argv]), AuditSpec)


def audit_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as left:
        build_parser().parse_args(["audit", *argv, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


def flags_in(text: str) -> set[str]:
    words = [line.split()[0].rstrip(",") for line in text.splitlines() if line.startswith("  --")]
    return {word.removeprefix("--").replace("-", "_") for word in words}


def test_the_help_of_an_audit_is_a_page_that_names_every_search(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = audit_help(monkeypatch, capsys).splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    named = [line.split()[0] for line in lines if line.startswith("  ") and line.strip()]
    assert set(SEARCHES) <= set(named)
    flags = flags_in("\n".join(lines))
    assert flags >= {field.name for field in fields(AuditSpec)} - {"options", "other_models"}
    assert flags.isdisjoint({"length", "turns", "beam", "template"})


@pytest.mark.parametrize("name", SEARCHES)
def test_the_flags_of_a_search_stand_under_its_own_heading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    shared, heading, own = audit_help(monkeypatch, capsys, "--search", name).partition(f"flags of {name}:\n")
    assert heading
    settings = set(flag_names(search_config(name), AuditSpec))
    assert len(settings) > 3
    assert flags_in(own) == settings
    assert flags_in(shared).isdisjoint(settings)


def test_the_flags_of_a_hugging_face_model_stand_under_a_heading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--search", "ast"]):
        text = audit_help(monkeypatch, capsys, "--model", "hf/some/model", *more)
        assert flags_in(re.split(r"\n.*hf/some/model.*:\n", text)[-1]) == set(flag_names(ModelOptions))


@pytest.mark.parametrize("name", SEARCHES)
def test_every_setting_of_a_search_has_its_sentence(name: str) -> None:
    kind = search_config(name)
    assert set(flag_names(kind, AuditSpec)) <= field_help(kind).keys()


def test_flags_find_their_place() -> None:
    spec = audit_spec("--search", "ast", "--turns", "2", "--model", "hf/x", "--system", "be kind")
    assert (spec.search.name, spec.search.turns, spec.options.system) == ("ast", 2, "be kind")
    assert chosen(spec) == ["model", "search", "search.turns", "options.system"]
    assert spec == audit_spec(*shlex.split(command_of(spec_values(spec), chosen(spec)))[2:])
    assert spec == flat_spec(AuditSpec, {"search": "ast", "turns": 2, "model": "hf/x", "system": "be kind"})
    assert spec == build_spec(AuditSpec, spec_values(spec), "stored")


@pytest.mark.parametrize(
    ("argv", "phrase"),
    [
        (["--turns", "3"], "--turns belongs to --search ast;"),
        (["--no-recall"], "--recall belongs to --search reverse;"),
        (["--search", "ast", "--length=3"], "--length belongs to --search gibbs, gcg, beam, random, relax;"),
        (["--search", "gibbs", "--max-queries", "9"], "belongs to --search reverse, retrieval, utterances;"),
        (["--template", "chat"], "--template belongs to Hugging Face models;"),
        (["--model", "chitchat", "--dtype", "float32"], "--dtype belongs to Hugging Face models;"),
        (["--trns", "3"], "unknown flag --trns"),
        (["--search", "gibs"], "unknown search 'gibs'; did you mean 'gibbs'?"),
        (["--search", "ast", "--turns", "0"], "--turns should not be 0; the range is 1 to 100"),
        (["--model", "hf/x", "--template", "chta"], "--template: unknown value 'chta'; did you mean 'chat'?"),
    ],
)
def test_a_flag_that_has_no_place_is_refused(argv: list[str], phrase: str) -> None:
    with pytest.raises(InputError) as caught:
        audit_spec(*argv)
    assert phrase in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("search: {name: gibbs, turns: 3}", "turns belongs to --search ast, and this is gibbs"),
        ("search: {name: gibbs, lenght: 3}", "unknown key 'lenght'; did you mean 'length'?"),
        ("search: {name: gibbs, length: many}", "length should be a whole number, not 'many'"),
        ("search: {length: 3}", "search should be a name, or a mapping with a name"),
        ("search: [gibbs]", "search should be a name, or a mapping with a name"),
        ("search: {name: gibs}", "unknown search 'gibs'; did you mean 'gibbs'?"),
        ("length: 3", "unknown key 'length'"),
        ("template: chat", "unknown key 'template'"),
        ("options: chat", "options should be a mapping of settings"),
        ("options: {template: chta}", "template: unknown value 'chta'; did you mean 'chat'?"),
        ("options: {length: 3}", "unknown key 'length'"),
    ],
)
def test_a_key_that_has_no_place_is_refused(tmp_path: Path, text: str, phrase: str) -> None:
    path = tmp_path / "audit.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        audit_spec("--config", str(path))
    assert phrase in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flags_win_over_the_file_within_the_same_search(tmp_path: Path) -> None:
    path = tmp_path / "audit.yaml"
    path.write_text(
        "model: hf/x\nseed: 5\nsearch: {name: gcg, length: 3, top: 9}\n"
        "options: {system: be kind, max-reply: 7}\n"
    )
    read = audit_spec("--config", str(path))
    assert (read.search.name, read.search.length, read.search.top) == ("gcg", 3, 9)
    assert (read.options.system, read.options.max_reply) == ("be kind", 7)
    for named in ([], ["--search", "gcg"]):
        over = audit_spec(
            "--config", str(path), *named, "--length", "4", "--system", "be rude", "--seed", "6"
        )
        assert (over.search.length, over.search.top, over.seed) == (4, 9, 6)
        assert (over.options.system, over.options.max_reply) == ("be rude", 7)


def test_another_search_than_that_of_the_file_brings_its_own_settings(tmp_path: Path) -> None:
    path = tmp_path / "audit.yaml"
    path.write_text("search: {name: gcg, length: 3}\n")
    with pytest.raises(InputError) as caught:
        audit_spec("--config", str(path), "--search", "gibbs")
    assert str(path) in str(caught.value)
    assert "gcg" in str(caught.value)
    assert "--search says gibbs" in str(caught.value)
    path.write_text("search: gcg\n")  # has no settings of its own
    assert audit_spec("--config", str(path), "--search", "ast", "--turns", "2").search.turns == 2
    with pytest.raises(InputError, match="--turns belongs to --search ast"):
        audit_spec("--config", str(path), "--turns", "2")


def test_a_budget_makes_no_other_run_and_a_setting_does() -> None:
    def identity(*argv: str) -> dict[str, Any]:
        return identity_values(audit_spec(*argv))

    plain = identity("--max-time", "1h")
    assert plain == identity("--max-time", "2h", "--max-candidates", "9") == identity()
    others = (["--length", "3"], ["--seed", "2"], ["--search", "gcg"], ["--model", "smollm2"], ["--no-prune"])
    assert all(identity(*argv) != plain for argv in others)
    moved = [identity("--search", "ast", "--adversary", folder) for folder in ("a", "b")]
    assert moved[0] == moved[1] != identity("--search", "ast")
    reread = [identity("--model", "smollm2", "--system", text) for text in ("be kind", "be rude")]
    assert reread[0] != reread[1]
