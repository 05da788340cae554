"""A spec is the flags, the YAML keys and the help at once."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from backtalk.errors import InputError
from backtalk.registry import SEARCHES
from backtalk.spec import (
    AuditSpec,
    HardenSpec,
    ModelOptions,
    Range,
    TrainSpec,
    add_flags,
    build_spec,
    field_help,
    model_options,
    read_yaml,
    spec_values,
)


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
    with pytest.raises(InputError, match="avoid: unknown value 'nothing'; known: frequent, none, paper"):
        build_spec(HardenSpec, {"avoid": "nothing"}, "here")
    parser = argparse.ArgumentParser()
    add_flags(parser, HardenSpec)
    assert "--avoid paper|frequent|none" in parser.format_help()


def test_the_sentence_under_a_field_is_its_help() -> None:
    assert field_help(Tea) == {
        "leaf": "Which leaf; 100% of the taste.",
        "cups": "How many.",
        "minutes": "How long.",
        "milk": "With milk.",
        "size": "Of the cup.",
    }


def test_the_help_of_search_names_every_search() -> None:
    named = re.findall(r"\w+", field_help(AuditSpec)["search"])
    assert set(SEARCHES) <= set(named)


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


def test_the_model_options_of_a_spec_are_its_fields_of_those_names() -> None:
    @dataclass(frozen=True)
    class Some:
        system: str = "be kind"
        max_reply: int = 7
        leaf: str = "green"

    assert model_options(Some()) == ModelOptions(system="be kind", max_reply=7)
    assert field_help(ModelOptions).keys() == {field.name for field in fields(ModelOptions)}
