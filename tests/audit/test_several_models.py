"""One trigger for several models, from the command line and from Python: stored, shown and refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import backtalk
from backtalk.audit import reference
from backtalk.cli import run
from backtalk.models.folder import load_folder, save_model, write_card
from backtalk.models.lstm.model import LocalModel
from backtalk.runs.summary import read_results
from backtalk.store import Run
from backtalk.types import Turn

SMALL = ["--length", "2", "--top", "8", "--sweeps", "2", "--restarts", "2", "--device", "cpu"]


def shaken(network: nn.Module, by: float) -> None:
    torch.manual_seed(3)
    with torch.no_grad():
        for value in network.parameters():
            value.add_(by * torch.randn_like(value))


@pytest.fixture(scope="module")
def twins(rude: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The rude model, and one with the same words whose weights were shaken."""
    place = tmp_path_factory.mktemp("twins")
    first = load_folder(str(rude / "model"), "cpu")
    shaken(first.network, 0.1)
    write_card(place / "other", {"T_out": -3.0, "sha256": save_model(place / "other", first)})
    return [str(rude / "model"), str(place / "other")]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(reference, "SHIPPED_PAIRS", 6)
    monkeypatch.chdir(tmp_path)


def command(models: list[str], targets: Path, *more: str) -> list[str]:
    named = [word for name in models for word in ("--model", name)]
    return ["audit", *named, "--targets", str(targets / "targets.txt"), *SMALL, *more]


def summary(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "summary.json").read_text())
    return found


@pytest.mark.parametrize("more", [[], ["--universal"], ["--search", "gcg"], ["--search", "random"]])
def test_each_finding_has_the_scores_of_every_model(
    more: list[str], twins: list[str], rude: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = (load_folder(name, "cpu") for name in twins)
    assert run(command(twins, rude, "--out", "a", *more)) == 0
    assert "Same inputs, " in capsys.readouterr().out
    said, likely, log_probs = set(), set(), []
    with Run.open(Path("a")) as opened:
        findings = opened.findings()
    for one in findings:
        dialogue = [(Turn("user", one.trigger),)]
        sums = [sum(model.log_prob(dialogue, [one.target])[0]) for model in (first, other)]
        assert one.scores["log_prob"] == pytest.approx(sums[0], abs=1e-4)
        assert one.scores[f"log_prob@{twins[1]}"] == pytest.approx(sums[1], abs=1e-4)
        assert one.reply == first.reply(dialogue)[0]
        if more != ["--universal"]:
            assert one.scores["loss"] == pytest.approx(-sum(sums) / 2, abs=1e-4)
        exact = other.greedy_ids(other.encode_dialogues(dialogue))[0] == other.encode_target(one.target)
        assert one.scores[f"greedy@{twins[1]}"] == exact
        said |= {one.case} if exact else set()
        likely |= {one.case} if sums[1] >= -13.8155 else set()
        log_probs.append(sums[1])
    told = summary("a")["other_models"]
    assert list(told) == [twins[1]]
    assert (told[twins[1]]["said"]["hits"], told[twins[1]]["said"]["n"]) == (len(said), 6)
    assert told[twins[1]]["chance"]["over"]["1e-6"]["hits"] == len(likely)
    assert told[twins[1]]["chance"]["log_prob"] == pytest.approx(max(log_probs), abs=1e-4)
    assert run(["verify", "a"]) == 0


def test_it_is_likelier_on_the_other_model_than_by_a_search_on_one(twins: list[str], rude: Path) -> None:
    other = load_folder(twins[1], "cpu")
    means = []
    for models, out in ((twins, "both"), (twins[:1], "alone")):
        assert run(command(models, rude, "--sweeps", "4", "--out", out)) == 0
        with Run.open(Path(out)) as opened:
            pairs = [((Turn("user", one.trigger),), one.target) for one in opened.findings()]
        sums = map(sum, other.log_prob([said for said, _ in pairs], [target for _, target in pairs]))
        means.append(sum(sums) / len(pairs))
    assert means[0] > means[1]


def test_a_resumed_run_is_the_unbroken_one(twins: list[str], rude: Path) -> None:
    both = command(twins, rude, "--block", "2")
    assert run([*both, "--out", "whole"]) == 0
    assert run([*both, "--max-candidates", "1", "--out", "cut"]) == 0
    with Run.open(Path("cut")) as stored:
        assert len(stored.done_blocks()) < stored.blocks
    assert run(["resume", "cut"]) == 0
    found = []
    for name in ("whole", "cut"):
        with Run.open(Path(name)) as stored:
            found.append([(one.case, one.turns, one.scores, one.series) for one in stored.findings()])
    assert found[0] == found[1]


def test_the_other_models_are_part_of_what_a_run_is(
    twins: list[str], rude: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(twins[1], "second")
    names = [twins[0], "second"]
    assert run(command(names, rude, "--max-candidates", "1", "--block", "2", "--out", "a")) == 0
    assert run(command(twins[:1], rude, "--block", "2", "--out", "a")) == 2  # one model is another run
    assert run(command(names, rude, "--block", "2", "--out", "a")) == 0  # and the same command resumes it
    model = load_folder("second", "cpu")
    shaken(model.network, 0.1)
    write_card(Path("second"), {"T_out": -3.0, "sha256": save_model(Path("second"), model)})
    for verb in ("resume", "verify"):
        capsys.readouterr()
        assert run([verb, "a"]) == 2
        assert "second" in capsys.readouterr().err
    with Run.open(Path("a")) as opened:
        again = read_results(opened).summary  # without any model
        assert again["other_models"] == summary("a")["other_models"]
        assert f"--model {names[0]} --model second" in again["command"]


def test_verify_recomputes_the_scores_of_the_others(
    twins: list[str], rude: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sqlite3

    assert run(command(twins, rude, "--out", "a")) == 0
    with sqlite3.connect("a/run.sqlite") as database:
        ((place, data),) = database.execute("SELECT place, data FROM findings WHERE restart = 1 LIMIT 1")
        row = json.loads(data)
        row["scores"][f"log_prob@{twins[1]}"] += 0.5
        database.execute(
            "UPDATE findings SET data = ? WHERE place = ? AND restart = 1", (json.dumps(row), place)
        )
    capsys.readouterr()
    assert run(["verify", "a"]) == 3
    assert "log_prob@" in capsys.readouterr().out


def test_a_list_in_yaml_is_the_same_run(twins: list[str], rude: Path) -> None:
    Path("spec.yaml").write_text(f"model: {json.dumps(twins)}\ntargets: {rude / 'targets.txt'}\n")
    assert run(["audit", "--config", "spec.yaml", *SMALL, "--out", "a"]) == 0
    assert run(command(twins, rude, "--out", "a")) == 0
    assert run(["audit", "--config", "a/spec.yaml", "--out", "a"]) == 0  # a run's own spec, too
    assert run(["audit", "--config", "spec.yaml", "--model", twins[0], *SMALL, "--out", "b"]) == 0
    assert "other_models" not in summary("b")  # a flag replaces the list


def test_the_page_and_the_export_have_them(twins: list[str], rude: Path) -> None:
    assert run(command(twins, rude, "--out", "a")) == 0
    assert "Other models" in Path("a/report.html").read_text()
    assert run(["export", "a", "-o", "all.jsonl"]) == 0
    for line in Path("all.jsonl").read_text().splitlines():
        assert {f"log_prob@{twins[1]}", f"greedy@{twins[1]}"} <= json.loads(line)["scores"].keys()


def test_from_python(twins: list[str], rude: Path) -> None:
    targets = (rude / "targets.txt").read_text().splitlines()[:3]
    search = backtalk.Gibbs(length=2, top=8, sweeps=2)
    first = backtalk.load_model(twins[0], "cpu")
    named = backtalk.audit(twins, targets, search, device="cpu", out="a")
    held = backtalk.audit([first, twins[1]], targets, search, device="cpu", out="b")
    scores = [[one.scores for one in done.findings()] for done in (named, held)]
    assert scores[0] == scores[1]
    assert f"log_prob@{twins[1]}" in scores[0][0]
    for done in (named, held):
        assert not done.verify(device="cpu").problems
    with pytest.raises(backtalk.InputError, match="names or folders"):
        backtalk.audit([twins[0], first], targets, search, device="cpu", out="c")


BAD = {
    "other words": (["--model", "chitchat"], "chitchat has other tokens"),
    "an endpoint": (["--model", "http://127.0.0.1:1/v1#x"], "gives TEXT only"),
    "a function": (["--model", "py:tests.talkers:polite"], "gives TEXT only"),
    "text only": (["--model", "sealed:chitchat"], "gives TEXT only"),
    "a search of vectors": (["--model", "OTHER", "--search", "relax"], "takes one model"),
    "twice": (["--model", "MODEL"], "given twice"),
    "a copy": (["--model", "copy"], "a copy of"),
    "unknown": (["--model", "nosuch/model"], "nosuch"),
}


@pytest.mark.parametrize("name", BAD)
def test_refusals_are_one_line(
    name: str, twins: list[str], rude: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(twins[0], "copy")
    more, phrase = BAD[name]
    more = [{"MODEL": twins[0], "OTHER": twins[1]}.get(word, word) for word in more]
    base = ["audit", "--model", twins[0], "--targets", str(rude / "targets.txt"), "--search", "gibbs"]
    assert run([*base, *more, "--out", "a"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("backtalk: ")
    assert phrase in error
    assert not Path("a").exists()


def test_a_search_by_asking_takes_one_model(
    twins: list[str], rude: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command(twins, rude)[:7], "--search", "utterances", "--out", "a"]) == 2
    assert "takes one model" in capsys.readouterr().err


def test_two_hugging_face_models(chatterbox: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    shutil.copytree(chatterbox, tmp_path / "other")
    network: Any = AutoModelForCausalLM.from_pretrained(chatterbox)
    shaken(network, 0.02)
    network.save_pretrained(tmp_path / "other")
    names = [f"hf/{chatterbox}", f"hf/{tmp_path / 'other'}"]
    (tmp_path / "targets.txt").write_text("you are so boring\ngo away\n")
    size = ["--length", "3", "--out", "a"]
    assert run(command(names, tmp_path, *size)) == 0
    other: Any = backtalk.load_model(names[1], "cpu")
    with Run.open(Path("a")) as opened:
        findings = opened.findings()
    for one in findings:
        found = sum(other.log_prob([(Turn("user", one.trigger),)], [one.target])[0])
        assert one.scores[f"log_prob@{names[1]}"] == pytest.approx(found, abs=1e-3)
    assert run(["verify", "a"]) == 0
    assert run(command(names, tmp_path, "--max-time", "30s", "--length", "3", "--out", "b")) == 0


def test_a_model_with_another_tokenizer_is_refused(
    chatterbox: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.models.transformer.tiny import make_folder

    names = [f"hf/{chatterbox}", f"hf/{make_folder(tmp_path / 'gpt2', 'gpt2')}"]
    (tmp_path / "targets.txt").write_text("go away\n")
    assert run(command(names, tmp_path, "--out", "a")) == 2
    assert "other tokens" in capsys.readouterr().err


def test_the_time_of_a_candidate_is_that_of_all_models(twins: list[str]) -> None:
    """The estimate is measured on the models together, and a block holds fewer candidates."""
    from backtalk.audit.backend import Overrides
    from backtalk.audit.flow import make_backend
    from backtalk.specs.audit import AuditSpec
    from backtalk.types import Name, Origin

    def backend(names: list[str]) -> Any:
        typed = [Name(name, Origin.TYPED) for name in names]
        spec = AuditSpec(typed[0], "gibbs", device="cpu", other_models=tuple(typed[1:]))
        return make_backend(spec, Overrides(), backtalk.Consent())

    one, both = backend(twins[:1]), backend(twins)
    assert one.searched is one.model
    assert both.searched.models == [both.model, *both.others.values()]
    assert both.block_size() <= -(-one.block_size() // 2)
    assert isinstance(both.model, LocalModel)
    assert replace(both.spec, other_models=()) == one.spec
