"""The verb: a folder that a kill leaves whole, a summary that equals a plain loop, and refusals."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from backtalk.errors import InputError
from backtalk.models.folder import TextSettings, load_folder, save_folder, write_card
from backtalk.models.lstm.model import LocalModel
from reproduction.__main__ import run_command as run
from reproduction.data import characters
from reproduction.enumeration import flow as enumeration
from reproduction.enumeration import outputs
from reproduction.enumeration.flow import enumerate_model
from reproduction.enumeration.search import Enumeration, Outputs
from reproduction.spec import EnumerateSpec
from reproduction.tests.test_enumerate import letter_model

WORDS = ["dj", "jd", "hhh", "gg", "dddddddddd"]
"""Said, said inside other answers, never said, and too long to be said."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder, a list and a text; comparisons are small."""
    model = letter_model(attention=True)
    digest = save_folder(
        tmp_path / "model", model.network, model.vocabulary, TextSettings("characters", 5, 8)
    )
    write_card(tmp_path / "model", {"sha256": digest})
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n\ndj\n")
    (tmp_path / "text.txt").write_text(" the bad cab \n of dada and gabe\n")
    monkeypatch.setattr(outputs, "COMPARE", {"cpu": 500})
    monkeypatch.setattr(characters, "random_list", lambda words, symbols: ["abab", "cccc"])
    return tmp_path


def spec_for(place: Path, **changes: Any) -> EnumerateSpec:
    lists = f"words={place / 'words.txt'}, mal"
    spec = EnumerateSpec(model=str(place / "model"), length=4, symbols="abcdef", lists=lists, device="cpu")
    return replace(spec, outside="words", examples=3, **changes)


def replies(model: LocalModel, symbols: str, length: int) -> dict[str, str]:
    """input -> answer by the model's plain greedy decoding; "_" marks one that does not end."""
    inputs = ["".join(letters) for letters in product(sorted(symbols, key=model.encode_input), repeat=length)]
    rows = model.greedy_ids(torch.tensor([model.encode_input(text) for text in inputs]))
    shown = ["".join(model.vocabulary.words(i for i in ids if i != 2)) + "_" * (2 not in ids) for ids in rows]
    return dict(zip(inputs, shown, strict=True))


def test_the_summary_equals_a_plain_loop(place: Path) -> None:
    spec = spec_for(place)
    summary = enumerate_model(spec, place / "out")
    model = load_folder(spec.model, "cpu")
    said = replies(model, spec.symbols, 4)
    answers = list(said.values())
    assert summary["inputs"] == summary["space"] == len(said) == 1296
    assert (summary["symbols"], summary["length"], summary["sampled"]) == (6, 4, False)
    assert summary["fingerprint"] == model.fingerprint
    assert summary["distinct_outputs"] == len(set(answers))
    assert summary["unfinished"] == sum(answer.endswith("_") for answer in answers) > 0
    found = summary["lists"]["words"]
    assert (found["n"], found["too_long"]) == (5, 1)
    assert found["exact"]["hits"] == sum(word in answers for word in WORDS) == 1
    assert found["substring"]["hits"] == sum(any(word in answer for answer in answers) for word in WORDS) == 3
    assert found["confirmed"] == {"exact": 1, "substring": 3}
    for example in found["examples"]:
        assert example["target"] in example["output"]
        assert said[example["input"]].rstrip("_") == example["output"]
    assert summary["lists"]["mal"]["n"] == 500
    outside = [text for text, answer in said.items() if answer not in WORDS]
    assert summary["outside"]["inputs"] == len(outside)
    assert summary["outside"]["rate"] == len(outside) / 1296
    assert summary["outside"]["cut"] == answers.count("dddddddd_") > 0
    assert len(summary["outside"]["samples"]) == 3
    for sample in summary["outside"]["samples"]:
        assert said[sample["input"]].rstrip("_") == sample["output"]
        assert said[sample["input"]] not in WORDS
    assert summary["recheck"]["hits"] == summary["recheck"]["confirmed"] > 0
    assert summary["disagreement"] == {"inputs": 500, "different": 0}
    assert json.loads((place / "out" / "summary.json").read_text()) == summary


class Killed(BaseException):
    """Stands for a kill: nothing in the program catches it."""


def test_a_killed_run_ends_where_the_unbroken_one_does(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_for(place)
    monkeypatch.setattr(enumeration, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr("reproduction.enumeration.search.ROWS", {"cpu": 3})  # shards of 36 inputs
    whole = enumerate_model(spec, place / "whole")
    decode, done = Enumeration.decode_shard, list[range]()

    def decode_until_killed(self: Enumeration, shard: range) -> Outputs:
        if len(done) == 9:
            raise Killed
        done.append(shard)
        return decode(self, shard)

    monkeypatch.setattr(Enumeration, "decode_shard", decode_until_killed)
    with pytest.raises(Killed):
        enumerate_model(spec, place / "out")
    assert not (place / "out" / "summary.json").exists()
    (place / "out" / "outputs.safetensors.partial").write_bytes(b"half")

    def decode_what_is_left(self: Enumeration, shard: range) -> Outputs:
        done.append(shard)
        return decode(self, shard)

    monkeypatch.setattr(Enumeration, "decode_shard", decode_what_is_left)
    monkeypatch.setattr("reproduction.enumeration.search.ROWS", {"cpu": 30_000})  # as on another device
    summary = enumerate_model(spec, place / "out")
    assert 0 < done[9].start <= done[8].stop
    assert [len(shard) for shard in done[:10]] == [36] * 9 + [1296 - done[9].start]
    timed = {"seconds", "inputs_per_s"}
    assert {key: summary[key] for key in summary if key not in timed} == {
        key: whole[key] for key in whole if key not in timed
    }
    ours, theirs = (load_file(place / name / "outputs.safetensors") for name in ("out", "whole"))
    for name in Outputs._fields:
        assert torch.equal(ours[name], theirs[name])


def test_the_same_again_does_no_work_and_another_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_for(place)
    first = enumerate_model(spec, place / "out")

    def fail(self: Enumeration, shard: range) -> Outputs:
        raise AssertionError("it was done already")

    with monkeypatch.context() as patch:
        patch.setattr(Enumeration, "decode_shard", fail)
        assert enumerate_model(replace(spec, max_time="2h"), place / "out") == first
        with pytest.raises(InputError, match=r"\(length differ\)"):
            enumerate_model(replace(spec, length=3), place / "out")
        (place / "words.txt").write_text("dj\n")
        with pytest.raises(InputError, match=r"\(targets differ\)"):
            enumerate_model(spec, place / "out")
    assert enumerate_model(spec, place / "out", fresh=True)["lists"]["words"]["n"] == 1
    (place / "out" / "diary.txt").write_text("mine")
    with pytest.raises(InputError, match=r"diary\.txt"):
        enumerate_model(spec, place / "out")


def test_a_sample_is_drawn_with_its_seed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "SAMPLED", 300)
    spec = spec_for(place, sample=1000)
    first = enumerate_model(spec, place / "a")
    assert (first["inputs"], first["space"], first["sampled"]) == (1000, 1296, True)
    second = enumerate_model(spec, place / "b")
    assert first["lists"] == second["lists"]
    assert first["distinct_outputs"] == second["distinct_outputs"]
    other = enumerate_model(replace(spec, seed=2), place / "c")
    assert other["outside"]["inputs"] != first["outside"]["inputs"]
    whole = enumerate_model(replace(spec, sample=0), place / "d")
    assert abs(first["outside"]["rate"] - whole["outside"]["rate"]) < 0.07


def test_a_space_that_is_too_large_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "PROBE", {"cpu": 100})
    with pytest.raises(InputError, match=r"5 .* 10 .* 100,000.* --max-time 0\.001s"):
        enumerate_model(spec_for(place, length=5, symbols="", max_time="0.001s"), place / "out")
    assert not (place / "out" / "outputs.safetensors").exists()


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"symbols": "abX"}, "--symbols: .*model does not know X"),
        ({"lists": "mall"}, "--lists: unknown list 'mall'; did you mean 'mal'"),
        ({"lists": "mal,mal"}, "--lists names 'mal' twice"),
        ({"lists": "words=nothing.txt"}, "there is no file nothing.txt"),
        ({"outside": "nothing.txt"}, "there is no file nothing.txt"),
        ({"length": 6}, "--length should be from 1 to the 5 words"),
        ({"max_time": "soon"}, "--max-time should read like"),
        ({"model": "py:builtins:print"}, "is typed on the command line"),
    ],
)
def test_what_a_spec_may_not_say(place: Path, changes: dict[str, Any], phrase: str) -> None:
    with pytest.raises(InputError, match=phrase):
        enumerate_model(replace(spec_for(place), **changes), place / "out")


def test_the_command_prints_a_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = (
        f"enumerate --model {place}/model --length 2 --symbols abc --text {place}/text.txt --out {place}/out"
    )
    assert run(command.split()) == 0
    printed = capsys.readouterr().out
    for part in (
        "normal",
        "reverse",
        "random",
        "mal",
        "9 inputs of length 2 over 3 symbols",
        "no word of normal",
    ):
        assert part in printed
    assert run(command.split()) == 0
    assert capsys.readouterr().out == printed
    assert run(["enumerate", "--length", "3"]) == 2
    assert "name a model" in capsys.readouterr().err
