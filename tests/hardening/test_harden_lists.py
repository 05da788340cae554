"""`harden` with lists that are given, the last iteration kept, and no audits: as a study needs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.cli import run
from backtalk.data.targets import read_targets
from backtalk.errors import InputError
from backtalk.hardening.iterations import Selection
from backtalk.hardening.lists import target_lists, targets_of
from backtalk.hardening.subjects.lstm import Lstm
from backtalk.models.folder import load_embedded, load_folder
from backtalk.models.lstm.model import LocalModel
from backtalk.report.hardening_record import Candidate
from backtalk.specs.harden import HardenSpec, Sentences
from backtalk.training.resumable import load_checkpoint

TRAIN = ("i hate you", "you are bad", "you are so stupid", "go away", "xqzt you")
SELECTION = ("shut up", "you are crazy")
HELD_OUT = ("nobody likes you", "leave me alone", "you are ugly")
SMALL = [
    "--model", "chitchat", "--length", "2", "--top", "4", "--sweeps", "1", "--search-sweeps", "1",
    "--restarts", "1", "--iterations", "2", "--rounds", "2", "--measure", "12",
    "--hit", "o-sample-avg-k2", "--escalate", "0", "--device", "cpu",
]  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return load_embedded("chitchat", "cpu")


@pytest.fixture
def lists(tmp_path: Path) -> HardenSpec:
    """A spec with three given lists."""
    paths: dict[str, Any] = {}
    for name, texts in (("targets", TRAIN), ("selection", SELECTION), ("held_out", HELD_OUT)):
        file = tmp_path / f"{name}.txt"
        file.write_text("\n".join(texts) + "\n")
        paths[name] = str(file)
    (tmp_path / "pairs.tsv").write_text("".join(f"hello number {i}\tthat is nice\n\n" for i in range(60)))
    return HardenSpec(sentences=Sentences(**paths), data=str(tmp_path / "pairs.tsv"))


def with_lists(spec: HardenSpec, **changes: Any) -> HardenSpec:
    return replace(spec, sentences=replace(spec.sentences, **changes))


def flags(spec: HardenSpec, out: Path, *more: str) -> list[str]:
    own = spec.sentences
    given = ["--targets", own.targets, "--selection", own.selection, "--held-out", own.held_out]
    return ["harden", *SMALL, *given, "--data", spec.data, "--out", str(out), *more]


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def test_given_lists_are_taken_as_they_are(lists: HardenSpec, model: LocalModel) -> None:
    found = target_lists(lists, model)
    assert [target.text for target in targets_of(found.train)] == list(TRAIN[:4])
    assert [target.text for target in targets_of(found.selection)] == list(SELECTION)
    assert [target.text for target in targets_of(found.held_out)] == list(HELD_OUT)
    assert found.left_out == 1  # no model knows xqzt
    assert len(target_lists(with_lists(lists, limit=2), model).held_out) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"held_out": ""}, "--held-out is missing"),
        ({"selection": ""}, "--selection is missing"),
        ({"held_out": "TARGETS"}, "of --held-out stand in --targets too"),
        ({"selection": "TARGETS"}, "of --selection stand in --targets too"),
        ({"selection": "HELD_OUT"}, "of --held-out stand in --selection too"),
    ],
)
def test_what_would_prove_nothing_is_refused(
    lists: HardenSpec, model: LocalModel, change: dict[str, str], said: str
) -> None:
    paths = {"TARGETS": lists.sentences.targets, "HELD_OUT": lists.sentences.held_out}
    spec = with_lists(lists, **{key: paths.get(value, value) for key, value in change.items()})
    with pytest.raises(InputError, match=said):
        target_lists(spec, model)


def test_a_list_without_a_known_word_is_refused(lists: HardenSpec, model: LocalModel, tmp_path: Path) -> None:
    (tmp_path / "unknown.txt").write_text("xqzt blorp\n")
    with pytest.raises(InputError, match=r"--selection .* holds no target"):
        target_lists(with_lists(lists, selection=str(tmp_path / "unknown.txt")), model)


def test_with_the_last_iteration_kept_the_selection_may_follow_the_held_out_list(
    lists: HardenSpec, model: LocalModel
) -> None:
    spec = replace(with_lists(lists, selection=lists.sentences.held_out), keep="last")
    assert target_lists(spec, model).selection == target_lists(spec, model).held_out
    with pytest.raises(InputError, match="stand in --targets too"):  # never what was trained against
        target_lists(with_lists(spec, held_out=lists.sentences.targets), model)


def test_another_list_is_another_hardening(lists: HardenSpec, tmp_path: Path) -> None:
    facts = Lstm(lists).facts()
    Path(lists.sentences.held_out).write_text("\n".join(HELD_OUT[:2]) + "\n")
    changed = Lstm(lists).facts()
    assert {key for key in facts if facts[key] != changed[key]} == {"lists_sha256"}
    assert Lstm(with_lists(lists, audits=False)).facts() == changed  # audits can be added later
    assert Lstm(replace(lists, keep="last")).facts() != changed
    adapting, fixed = (Lstm(replace(lists, kl=kl, keep="best")).facts() for kl in (None, 10.0))
    assert {key for key in fixed if fixed[key] != adapting[key]} == {"kl_adapts"}, "both begin with 10"


def test_last_keeps_the_last_whatever_it_costs(tmp_path: Path, model: LocalModel) -> None:
    cheap, dear = (
        Candidate(i, hits=10 - i, n=10, perplexity=50.0 * i + 50, found=3, updates=i) for i in (0, 1)
    )
    dearest = Candidate(2, hits=9, n=10, perplexity=500.0, found=3, updates=2)
    network = model.network
    name, weights = next(iter(network.named_parameters()))
    was = weights.detach().clone()
    try:
        for keep, kept, moved in (("best", 1, 1.0), ("last", 2, 2.0)):
            selection = Selection(tmp_path / f"{keep}.safetensors", 1.5, {}, keep)
            for step, candidate in enumerate((cheap, dear, dearest)):
                with torch.no_grad():
                    weights.copy_(was + step)
                selection.add(candidate, network)
            again = Selection(tmp_path / f"{keep}.safetensors", 1.5, {}, keep)
            assert again.best.iterations == kept
            stored = load_checkpoint(again.path)
            assert stored is not None
            parts = {key.partition(".")[0] for key in stored[0]}
            assert parts == ({"last"} if keep == "last" else {"best", "last"})
            again.fill(network)
            assert torch.allclose(dict(network.named_parameters())[name], was + moved)
    finally:
        with torch.no_grad():
            weights.copy_(was)


def test_without_audits_nothing_is_proven_and_they_can_be_added(
    lists: HardenSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "hardened"
    assert run(flags(lists, out, "--keep", "last", "--no-audits")) == 0
    shown = capsys.readouterr()
    assert "nothing is proven" in " ".join(shown.out.split()).lower()
    assert "Left out: 1 target that chitchat has no words for." in " ".join(shown.err.split())
    assert not (out / "audits").exists()
    summary = read(out / "summary.json")
    assert summary["held_out"] is None
    assert summary["proof"] == []
    hardening = summary["hardening"]
    assert hardening["iterations_kept"] == hardening["candidates"][-1]["iterations"] > 0
    assert hardening["max_ppl_increase"] is None
    assert [target.text for target in read_targets(out / "held-out.jsonl")] == list(HELD_OUT)
    first = load_folder(str(out / "model"), "cpu").fingerprint
    assert run(flags(lists, out, "--keep", "last")) == 0  # the same hardening, now with its audits
    proven = read(out / "summary.json")
    assert proven["held_out"]["before"]["n"] == len(HELD_OUT)
    assert proven["train"]["before"]["n"] == len(TRAIN) - 1
    assert proven["proof"]
    assert proven["cost"] == summary["cost"]
    assert load_folder(str(out / "model"), "cpu").fingerprint == first
    assert run(flags(lists, out, "--keep", "last", "--no-audits")) == 0
    assert read(out / "summary.json") == proven  # what is proven stays


def test_flags_that_would_do_nothing_are_refused(
    lists: HardenSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(flags(lists, tmp_path / "a", "--keep", "last", "--max-ppl-increase", "5%")) == 2
    assert "does nothing with --keep last" in capsys.readouterr().err
    assert run(["harden", "--against", "frequent", "--held-out", lists.sentences.held_out]) == 2
    assert "--held-out belongs to --against targets" in capsys.readouterr().err
