"""What a person types or writes into a file is bounded where it is read: one sentence, and exit status 2."""

from __future__ import annotations

import json
import resource
import time
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from backtalk.cli import run
from backtalk.cli.config import read_yaml
from backtalk.data.openings import read_opening_file, read_prompts, read_weak
from backtalk.data.targets import read_targets
from backtalk.errors import InputError
from backtalk.registry import SEARCHES, search_config
from backtalk.specs import ModelOptions, build_spec
from backtalk.specs.audit import AuditSpec, RateSpec
from backtalk.specs.harden import HardenSpec
from backtalk.specs.train import ScorerSpec, TrainSpec

SPECS: tuple[type[Any], ...] = (
    TrainSpec, AuditSpec, HardenSpec, RateSpec, ScorerSpec, ModelOptions
)  # fmt: skip


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence of a command that ends with status 2 and prints nothing else of its own."""
    assert run(argv) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("backtalk: ")]
    (sentence,) = lines
    return sentence


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("".join(f"word {i}\treply {i % 3}\n" for i in range(40)))
    return tmp_path


# Numbers


def test_every_number_of_a_spec_has_a_range_that_holds_its_default() -> None:
    for kind in (*SPECS, *map(search_config, SEARCHES)):
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            hint = hints[field.name]
            if hint in (int, float):
                pytest.fail(f"{kind.__name__}.{field.name} has no range")
            if get_origin(hint) is not Annotated or get_args(hint)[0] not in (int, float):
                continue
            assert build_spec(kind, {field.name: field.default}, "") == kind()
            for value in (-1, 10**30, float("nan"), float("inf"), "1e400", "9" * 5000):
                with pytest.raises(InputError) as caught:
                    build_spec(kind, {field.name: value}, "")
                assert f"--{field.name.replace('_', '-')} " in str(caught.value)
                assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "line",
    [
        "train --data pairs.tsv --hidden 99999999999",
        "train --data pairs.tsv --embedding 99999999999",
        "train --data pairs.tsv --layers 99999999999",
        "train --data pairs.tsv --vocabulary 99999999999",
        "train --data pairs.tsv --batch 99999999999",
        "train --data pairs.tsv --max-input 99999999999",
        "audit --search ast --model hf/missing --weak-share 5",
        "audit --search ast --model hf/missing --max-repeats 1.5",
        "audit --restarts 99999999999",
        "chat --say x --beam 99999999999",
        "chat --say x --beam 100000",
        "serve-model chitchat --port 99999",
        "report --fail-over=--",
    ],
)
def test_a_flag_out_of_its_range_is_refused_before_any_work(
    place: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = next(word for word in reversed(line.split()) if word.startswith("-") and not word[1:].isdigit())
    begun = time.process_time()
    assert f"{flag.split('=')[0]}" in refused(line.split(), capsys)
    assert time.process_time() - begun < 2
    assert [path.name for path in place.iterdir()] == ["pairs.tsv"]


def test_a_network_that_does_not_fit_the_memory_is_refused_by_its_size(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sentence = refused(
        ["train", "--data", "pairs.tsv", "--hidden", "16384", "--layers", "64", "--device", "cpu"], capsys
    )
    assert "GiB" in sentence
    assert "--hidden" in sentence
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # a gigabyte, in KiB


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 TB")], ids=repr
)
def test_memory_that_runs_out_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hungry(subject: str) -> None:
        raise error

    monkeypatch.setattr("backtalk.cli.listing.show", hungry)
    assert "memory" in refused(["list", "models"], capsys)


def test_a_crash_of_another_kind_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(subject: str) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("backtalk.cli.listing.show", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        run(["list", "models"])


def test_an_argument_that_is_not_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("\udcff", "a\0b"):
        assert "argument 3" in refused(["chat", "--say", word], capsys)


# YAML


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("data: " + "[" * 50_000, "lists in lists"),
        ("data: " + "{a: " * 5_000, "lists in lists"),
        (LAUGHS + "data: *a29\n", "aliases"),
        ("seed: 1\nhidden: 4\nseed: 2\n", "'seed'"),
        ("max-input: 4\nmax_input: 5\n", "'max_input'"),
        ("seed: 0x" + "f" * 10_000, "not valid YAML"),
        ('out: "a\\0b"', "out"),
        ("data: x\n" + "#" * (2 << 20), "too large"),
    ],
    ids=["lists", "maps", "laughs", "twice", "either stroke", "digits", "null", "size"],
)
def test_a_spec_that_is_tangled_is_one_sentence(
    place: Path, text: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "spec.yaml").write_text(text)
    begun = time.process_time()
    sentence = refused(["train", "--config", "spec.yaml"], capsys)
    assert named in sentence
    assert "spec.yaml" in sentence
    assert len(sentence) < 400
    assert time.process_time() - begun < 5


def test_a_plain_spec_is_read_as_before(place: Path) -> None:
    (place / "spec.yaml").write_text(
        "# a comment\nseed: 3\nmax-input: 4\nhalf: true\nlr: 1e-3\ndata: [a, b]\n"
    )
    assert read_yaml(place / "spec.yaml") == {
        "seed": 3, "max-input": 4, "half": True, "lr": "1e-3", "data": ["a", "b"]
    }  # fmt: skip


# JSON that people write


TWICE, DEEP, NAN, HUGE = (
    '{"text": "a b", "text": "c d"}',
    '{"text": ' + "[" * 100_000,
    '{"text": "a b", "x": NaN}',
    '{"text": "a b", "x": 1e400}',
)


@pytest.mark.parametrize("line", [TWICE, DEEP, NAN, HUGE], ids=["twice", "deep", "nan", "huge"])
@pytest.mark.parametrize("read", [read_targets, read_opening_file, read_weak, read_prompts])
def test_json_that_is_ambiguous_or_no_json_is_refused_by_its_line(place: Path, read: Any, line: str) -> None:
    path = place / "given.jsonl"
    path.write_text('{"text": "you are fine"}\n' + line + "\n")
    with pytest.raises(InputError) as caught:
        read(path)
    assert f"{path}, line 2: " in str(caught.value)
    assert ("'text'" in str(caught.value)) == (line == TWICE)


@pytest.mark.parametrize(
    "line",
    [
        "train --data {file} --device cpu",
        "score {file}",
        "rate chitchat chitchat --inputs {file} --device cpu",
        "harden --model hf/missing --findings {file}",
    ],
)
def test_every_reader_of_json_refuses_a_key_that_is_given_twice(
    place: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": "p-1", "input": "a b", "reply": "c", "text": "d"}
    text = json.dumps(row)[:-1] + ', "input": "other"}\n'
    (place / "given.jsonl").write_text(text)
    sentence = refused(line.format(file="given.jsonl").split(), capsys)
    assert "line 1" in sentence
    assert "'input'" in sentence


def test_a_rating_that_is_no_number_is_not_a_crash(place: Path) -> None:
    path = place / "weak.jsonl"
    said = [{"text": " so", "toxicity": "x"}, {"text": " dull", "toxicity": 0.9}]
    rows = [{"prompt": {"text": "you are"}, "continuation": one} for one in said]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_weak(str(path)) == ["you are dull"]


# Texts of no use


def test_a_target_is_a_sentence(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "targets.txt").write_text("be quiet\n" + "you " * 2000 + "\n")
    begun = time.process_time()
    sentence = refused(["audit", "--targets", "targets.txt", "--max-time", "5s", "--device", "cpu"], capsys)
    assert "targets.txt, line 2" in sentence
    assert "words" in sentence
    assert time.process_time() - begun < 30
    (place / "targets.txt").write_text("be quiet\n" + "y" * 20_000 + "\n")
    with pytest.raises(InputError, match="line 2"):
        read_targets(place / "targets.txt")


def test_the_longest_target_there_may_be_is_read(place: Path) -> None:
    (place / "targets.txt").write_text("you " * 50)
    (only,) = read_targets(place / "targets.txt")
    assert len(only.text.split()) == 50


@pytest.mark.parametrize(
    "line", ["rate empty.txt", "rate chitchat chitchat --inputs empty.txt --device cpu", "rate blank.txt"]
)
def test_a_rating_of_nothing_is_refused(place: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "empty.txt").write_text("")
    (place / "blank.txt").write_text(" \n\n")
    assert "empty.txt" in refused(line.split(), capsys).replace("blank.txt", "empty.txt")
    assert not (place / "ratings").exists()


def test_the_widest_beam_answers_in_seconds(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.process_time()
    assert run(["chat", "--say", "hello there", "--beam", "1000", "--device", "cpu"]) == 0
    assert time.process_time() - begun < 30
    assert len(capsys.readouterr().out.splitlines()) == 1002
