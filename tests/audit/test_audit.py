"""The whole way from command to report on the embedded model, at a small size."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reproduction.data.controls import normal_targets

from backtalk.audit.search_block import search_block
from backtalk.cli import run
from backtalk.data.targets import write_targets
from backtalk.data.tokenise import get_recipe
from backtalk.errors import InputError
from backtalk.hits import parse_criterion
from backtalk.models.folder import load_embedded
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import objective_for
from backtalk.searches.trial import row_seed
from backtalk.specs import parse_duration
from backtalk.store import Run
from backtalk.types import Found, Target, Thresholds
from tests.forging import forge_facts

QUICK = ["--limit", "12", "--length", "5", "--top", "8", "--sweeps", "2", "--device", "cpu"]
AVERAGE = ["--hit", "io-sample-avg-k1"]  # of which even a small search finds some
SLOWER = [*QUICK, "--limit", "40", "--restarts", "3", "--block", "4"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit") / "run"
    assert run(["audit", *QUICK, *AVERAGE, "--out", str(folder)]) == 0
    return folder


def stored(folder: Path) -> list[dict[str, object]]:
    """What a run found, without what depends on the clock."""
    with Run.open(folder) as opened:
        findings = opened.findings()
    return [{key: value for key, value in vars(finding).items() if key != "seconds"} for finding in findings]


def test_an_audit_ends_with_a_table_a_summary_and_a_page(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert "io-sample-avg-k1" in shown
    assert "report.html" in shown
    summary = json.loads((finished / "summary.json").read_text())
    needed = "run command model search seed cases scored failed skipped hits candidates queries seconds"
    assert set(needed.split()) <= summary.keys()
    assert summary["cases"] == 12
    assert summary["scored"] + summary["failed"] + summary["skipped"] == 12
    assert 0 < summary["candidates"] <= 12 * 2 * 5 * 8 * 2
    rate = summary["hits"]["io-sample-avg-k1"]
    assert rate["n"] == summary["scored"]
    assert rate["ci95"][0] <= rate["rate"] <= rate["ci95"][1]
    page = (finished / "report.html").read_text()
    assert "Content-Security-Policy" in page
    assert page.count("<script") == 2  # its own and its data
    assert finished.stat().st_mode & 0o777 == 0o700


def test_the_same_command_shows_a_finished_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = stored(finished)
    assert run(["audit", *QUICK, *AVERAGE, "--out", str(finished)]) == 0
    shown = capsys.readouterr()
    assert "searching" not in shown.err
    assert "io-sample-avg-k1" in shown.out
    assert stored(finished) == before


def test_runs_go_to_a_folder_of_their_own_and_are_found_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *QUICK, "--limit", "4"]) == 0
    assert run(["audit", *QUICK, "--limit", "4"]) == 0
    (only,) = Path("runs").iterdir()
    assert "chitchat-gibbs" in only.name
    assert run(["audit", *QUICK, "--limit", "4", "--fresh"]) == 0
    first, second = sorted(Path("runs").iterdir())
    assert stored(first) == stored(second)
    capsys.readouterr()
    assert run(["report"]) == 0
    assert second.name in capsys.readouterr().out


def test_export_has_an_object_a_finding(finished: Path, tmp_path: Path) -> None:
    assert run(["export", str(finished), "-o", str(tmp_path / "findings.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "findings.jsonl").read_text().splitlines()]
    assert len(rows) == 12 * 2  # two restarts
    for row in rows:
        assert {"case", "trigger", "reply", "scores", "hits"} <= row.keys()
        assert row["scores"]["log_prob"] == pytest.approx(sum(row["series"]["token_log_probs"]))


def test_stored_scores_equal_a_plain_forward_of_the_typed_trigger(finished: Path) -> None:
    from backtalk.types import Turn

    model = load_embedded("chitchat", "cpu")
    with Run.open(finished) as opened:
        findings = opened.findings()
    for finding in findings[:5]:
        dialogue = (Turn("user", finding.trigger),)
        (words,) = model.log_prob([dialogue], [finding.target])
        assert finding.series["token_log_probs"] == pytest.approx(words, abs=1e-4)
        assert finding.reply == model.reply([dialogue])[0]
        assert finding.scores["mean"] == pytest.approx(sum(words) / len(words), abs=1e-4)
        assert finding.scores["min"] == pytest.approx(min(words), abs=1e-4)


# --- verify --------------------------------------------------------------------------------------------


def test_verify_confirms_every_hit(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(finished)]) == 0
    assert "verified" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        lambda finding: finding["scores"].update(mean=finding["scores"]["mean"] + 0.01),
        lambda finding: finding["scores"].update(greedy=1.0 - finding["scores"]["greedy"]),
        lambda finding: finding["turns"][0].update(text="hello there my good old friend"),
        lambda finding: finding.update(reply="I never said that"),
        lambda finding: finding["series"]["token_log_probs"].reverse(),
    ],
    ids=["mean", "greedy", "trigger", "reply", "series"],
)
def test_verify_fails_when_a_finding_was_tampered_with(
    finished: Path,
    tmp_path: Path,
    change: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    database = sqlite3.connect(copy / "run.sqlite")
    place, restart, data = database.execute("SELECT place, restart, data FROM findings LIMIT 1").fetchone()
    finding = json.loads(data)
    assert callable(change)
    change(finding)
    database.execute(
        "UPDATE findings SET data = ? WHERE place = ? AND restart = ?", (json.dumps(finding), place, restart)
    )
    database.commit()
    database.close()
    assert run(["verify", str(copy)]) == 3
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["", "T_out and T_in are those of a better model."])
def test_verify_fails_when_thresholds_were_forged(
    finished: Path, tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    with Run.open(copy) as opened:
        told, thresholds = opened.facts["reference"], opened.facts["thresholds"]
    forge_facts(copy, thresholds={**thresholds, "T_out": -50.0, "T_in": -50.0}, reference=source or told)
    assert run(["verify", str(copy)]) == 3
    said = capsys.readouterr().out
    if source:
        assert "thresholds" in said
        assert f"{copy}: 0 of 12 hits confirmed" in said
    else:
        assert re.search(rf"T_out .* -50\.000000.* {thresholds['T_out']:.6f}", said)
        honest = json.loads((finished / "summary.json").read_text())["hits"]["io-sample-avg-k1"]["hits"]
        assert f"{copy}: {honest} of 12 hits confirmed" in said


def test_verify_counts_the_hits_of_the_report(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hits = json.loads((finished / "summary.json").read_text())["hits"]["io-sample-avg-k1"]["hits"]
    assert hits
    assert run(["verify", str(finished)]) == 0
    assert f"{hits} of {hits} hits confirmed, 24 findings recomputed" in capsys.readouterr().out


def test_verify_fails_when_a_weight_was_tampered_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import backtalk
    from backtalk.models.folder import sha256

    model = tmp_path / "model"
    shutil.copytree(Path(backtalk.__file__).parent / "embedded" / "chitchat", model)
    assert run(["audit", *QUICK, "--limit", "3", "--model", str(model), "--out", "run"]) == 0
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1000] ^= 0x10
    (model / "model.safetensors").write_bytes(bytes(weights))
    capsys.readouterr()
    assert run(["verify", "run"]) == 2  # the card's sha256 gives it away at once
    assert "sha256" in capsys.readouterr().err
    card = json.loads((model / "card.json").read_text())
    card["sha256"] = sha256(model / "model.safetensors")  # and with a forged card the fingerprint does
    (model / "card.json").write_text(json.dumps(card))
    assert run(["verify", "run"]) == 3
    assert "weights" in capsys.readouterr().out


# --- stopping and going on -----------------------------------------------------------------------------


def test_a_budget_stops_between_blocks_and_a_larger_one_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["audit", *SLOWER, "--length", "3", "--sweeps", "1", "--out", "run"]
    assert run([*arguments, "--max-candidates", "1"]) == 0
    partial = json.loads(Path("run/summary.json").read_text())
    assert "--max-candidates" in partial["stopped"]
    assert 0 < partial["scored"] < 40
    assert run([*arguments, "--max-candidates", "600"]) == 0
    further = json.loads(Path("run/summary.json").read_text())
    assert partial["scored"] < further["scored"] < 40
    assert run(["resume", "run"]) == 0  # to the end, whatever the budget was
    whole = json.loads(Path("run/summary.json").read_text())
    assert whole["stopped"] is None
    log = Path("run/log.txt").read_text()
    assert log.count(" s, done\n") == 10
    assert log.count(" s, unfinished: ") == 2
    assert "stopped: --max-candidates" in log
    assert log.rstrip().endswith("finished")
    assert whole["scored"] + whole["skipped"] == 40


def test_a_run_that_did_nothing_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *QUICK, "--limit", "2", "--max-time", "0.0001s", "--out", "run"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "--max-time 0.0001s was reached" in said
    assert "`backtalk resume`" in said
    with Run.open(Path("run")) as opened:
        assert (opened.state, opened.findings()) == ("stopped", [])


# --- gates ---------------------------------------------------------------------------------------------


def test_fail_over_judges_the_upper_end_of_the_interval(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upper = json.loads((finished / "summary.json").read_text())["hits"]["io-sample-avg-k1"]["ci95"][1]
    assert run(["report", str(finished), "--fail-over", str(upper + 1e-6)]) == 0
    assert run(["report", str(finished), "--fail-over", f"{100 * (upper - 0.001)}%"]) == 3
    assert "FAILED" in capsys.readouterr().out


def test_a_gate_that_nobody_waits_for_does_not_pass(finished: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "backtalk", "report", str(finished), "--fail-over", "0"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_baseline_fails_only_when_significantly_worse(finished: Path) -> None:
    assert run(["report", str(finished), "--baseline", str(finished)]) == 0
    # The same cases with hardly a candidate: fewer hits, so the real search is "worse" than that.
    assert run(["audit", *QUICK, "--limit", "60", "--out", "strong"]) == 0
    weak = [*QUICK, "--limit", "60", "--search", "random", "--length", "1", "--top", "1", "--sweeps", "1"]
    assert run(["audit", *weak, "--restarts", "1", "--out", "weak"]) == 0
    assert run(["report", "strong", "--baseline", "weak"]) == 3
    assert run(["report", "weak", "--baseline", "strong"]) == 0


# --- bad input -----------------------------------------------------------------------------------------

BAD = {
    "missing targets": (["--targets", "nosuch.txt"], "nosuch.txt"),
    "unknown list": (["--targets", "nosuch"], "lists: mal"),
    "empty targets": (["--targets", "empty.txt"], "empty.txt is empty"),
    "binary targets": (["--targets", "binary.txt"], "binary.txt"),
    "nothing known": (["--targets", "foreign.txt"], "nothing to do"),
    "unknown search": (["--search", "gibs"], "did you mean 'gibbs'"),
    "unknown hit": (["--hit", "io-sample-avg-k"], "did you mean"),
    "text-only model": (["--model", "sealed:chitchat", "--search", "gibbs"], "needs WEIGHTS access"),
    "flags of gibbs for a text-only model": (["--model", "sealed:chitchat"], "--length belongs to"),
    "bad number": (["--top", "many"], "top should be a whole number"),
    "a budget of queries for weights": (
        ["--max-queries", "50"],
        "--max-queries belongs to --search reverse, retrieval, utterances",
    ),
    "zero": (["--sweeps", "0"], "--sweeps should not be 0; the range is 1 to "),
    "words for a search of vectors": (["--search", "relax"], "--top belongs to --search gibbs"),
    "a setting of vectors for words": (["--space", "one-hot"], "--space belongs to --search relax"),
    "too long": (["--length", "99"], "more than the 15 words"),
    "bad time": (["--max-time", "soon"], "90s, 10m or 2h"),
    "bad rate": (["--fail-over", "2"], "--fail-over should not be 2"),
    "foreign folder": (["--out", "foreign"], "foreign"),
    "half-written folder": (["--out", "half"], "half"),
    "baseline missing": (["--out", "ok", "--baseline", "nosuch"], "nosuch"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.txt").write_text("")
    Path("binary.txt").write_bytes(b"\x00\x01\xff")
    Path("foreign.txt").write_text("zzyzx qwrtp\n")
    Path("foreign").mkdir()
    Path("foreign/diary.txt").write_text("mine")
    Path("half").mkdir()
    Path("half/run.sqlite").write_bytes(b"SQLite format 3\x00 and no more")
    arguments, phrase = BAD[name]
    assert run(["audit", *QUICK, "--limit", "3", *arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("backtalk: ")
    assert phrase in error
    assert Path("foreign/diary.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["--steps", "0"], "--steps should not be 0; the range is 1 to "),
        (["--space", "onehot"], "did you mean 'one-hot'"),
    ],
)
def test_bad_settings_of_relax_are_one_line(
    arguments: list[str], phrase: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "--search", "relax", "--limit", "3", *arguments]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert phrase in error


def test_the_page_shows_the_settings_that_say_something(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert "length 5, restarts 2," in page
    assert "language_model ," not in page


def test_more_candidates_than_words_are_all_words(capsys: pytest.CaptureFixture[str]) -> None:
    everything = ["--limit", "1", "--length", "1", "--sweeps", "1", "--restarts", "1", "--device", "cpu"]
    assert run(["audit", *everything, "--top", "100000", "--out", "run"]) == 0
    words = int(load_embedded("chitchat", "cpu").searchable().sum())
    assert f"1 cases, at most {words:,} candidates" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("precision", "how"), [("float32", (False, False)), ("bfloat16", (True, False)), ("tf32", (True, True))]
)
def test_precision_says_who_ranks_and_who_chooses(
    precision: str, how: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, run_search = [], Gibbs.run

    def spied(search: Gibbs, model: Any, *given: Any) -> list[Found]:
        seen.append((search.draft_of(model) is not None, search.precision == "tf32"))
        return run_search(search, model, *given)

    monkeypatch.setattr(Gibbs, "run", spied)
    few = ["--limit", "2", "--length", "2", "--top", "2"]  # some processors take long over bfloat16
    assert run(["audit", *QUICK, *few, "--precision", precision, "--out", "run"]) == 0
    assert set(seen) == {how}


def test_targets_with_unknown_words_are_skipped_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("targets.txt").write_text("go away\nyou are a zzyzx\n")
    assert run(["audit", *QUICK, "--targets", "targets.txt", "--out", "run"]) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["cases"], summary["scored"], summary["skipped"]) == (2, 1, 1)
    assert summary["hits"]["o-greedy"]["n"] == 1
    assert "skipped" in capsys.readouterr().out


def test_a_target_without_a_word_to_the_model_is_skipped() -> None:
    model = load_embedded("chitchat", "cpu")
    bare = replace(model, recipe=get_recipe("he-glass-2020"))
    objective = objective_for(parse_criterion("o-sample-avg-k1"), Thresholds(-4.0))
    targets = [Target("a", "... ..."), Target("b", "go away")]
    dots, words = search_block(bare, Gibbs(2, 2, 1, restarts=1), objective, 1, targets)
    assert (dots.status, dots.note) == ("skipped", "the target has no words")
    assert words.status == "found"


def test_durations() -> None:
    assert [parse_duration(text) for text in ("", "90s", "10m", "2h", "45")] == [0, 90, 600, 7200, 45]
    for text in ("x", "-3s", "0", "m"):
        with pytest.raises(InputError, match="90s, 10m or 2h"):
            parse_duration(text)


def test_seeds_depend_on_seed_case_and_restart_alone() -> None:
    seeds = {row_seed(s, c, r) for s in (1, 2) for c in ("a", "b", "1/a") for r in (0, 1)}
    assert len(seeds) == 12
    assert row_seed(1, "a", 0) == row_seed(1, "a", 0)


def test_relax_tells_what_the_reply_was_before_projection(capsys: pytest.CaptureFixture[str]) -> None:
    write_targets("said.jsonl", normal_targets(load_embedded("chitchat", "cpu"), 3, seed=1))
    relax = ["--search", "relax", "--space", "embedding", "--steps", "60", "--targets", "said.jsonl"]
    arguments = ["audit", *relax, "--limit", "3", "--length", "5", "--restarts", "1", "--device", "cpu"]
    assert run([*arguments, "--out", "run"]) == 0
    with Run.open(Path("run")) as opened:
        findings = opened.findings()
    assert len(findings) == 3
    assert any(finding.scores["relaxed_greedy"] for finding in findings)
    for finding in findings:
        assert "before projection" in finding.note
        assert 0 < finding.candidates <= 60
        said = finding.note.partition(": ")[2]
        if finding.scores["relaxed_greedy"]:
            model = load_embedded("chitchat", "cpu")
            assert model.encode_target(said) == model.encode_target(finding.target)
    capsys.readouterr()
    assert run(["verify", "run"]) == 0  # the projected words, from scratch
    summary = json.loads(Path("run/summary.json").read_text())
    greedy = sum(finding.scores["greedy"] for finding in findings)
    assert summary["hits"]["o-greedy"]["hits"] == greedy
