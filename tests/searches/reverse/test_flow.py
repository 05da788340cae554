"""The black-box audit from command to report, on a small world with known answers."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from backtalk.audit import flow
from backtalk.cli import run
from backtalk.registry import load_model
from backtalk.scorers.similarity import load_vectors
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.types import Name, Origin
from tests.killing import kill_once_there
from tests.searches.reverse.worlds import UTTERANCES, asked, build_world
from tests.web.served import served

REVERSE = ["--search", "reverse", "--max-queries", "500", "--beam", "8", "--pairs", "60"]


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return build_world(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished reverse run, and the world it was made in."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        assert run(["audit", *build_world(folder), *REVERSE, "--out", "run"]) == 0
    return folder


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def stored(folder: Path) -> list[dict[str, object]]:
    """What a run found, without what depends on the clock; as text, for no NaN equals another."""
    with Run.open(folder) as opened:
        return [
            {**vars(finding), "seconds": 0, "series": repr(finding.series)} for finding in opened.findings()
        ]


# --- budgets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["utterances", "retrieval"])
@pytest.mark.parametrize("most", [7, 40])
def test_the_controls_stay_within_their_queries(
    flags: list[str], search: str, most: int, tmp_path: Path
) -> None:
    assert run(["audit", *flags, "--search", search, "--max-queries", str(most), "--out", "run"]) == 0
    summary = summary_of(tmp_path / "run")
    sent = asked(tmp_path)
    assert sent.total() == summary["queries"] <= most
    assert max(sent.values()) == 1
    assert summary["queries_by_phase"] == {"pairs" if search == "retrieval" else "rerank": sent.total()}


def test_reverse_stays_within_its_queries_in_every_phase(trained: Path) -> None:
    summary = summary_of(trained / "run")
    sent = asked(trained)
    assert sent.total() == summary["queries"] <= 500
    assert max(sent.values()) == 1
    spent = summary["queries_by_phase"]
    assert list(spent) == ["pairs", "rl", "rerank"]
    assert spent["pairs"] == 60
    assert spent["rerank"] <= 3 * 8
    with Run.open(trained / "run") as opened:
        assert all(finding.queries <= 8 for finding in opened.findings())
        assert StoredAnswers(opened).spent() == spent


def test_the_line_before_the_work_says_how_queries_are_split(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["audit", *flags, "--search", "utterances", "--max-queries", "8", "--out", "run"])
    said = " ".join(capsys.readouterr().err.split())
    assert "at most 8 queries: 6 for" in said
    assert "2 not needed" in said


# --- findings ------------------------------------------------------------------------------------------


def test_retrieval_finds_what_was_planted(flags: list[str], tmp_path: Path) -> None:
    assert {"tea and you", "rain and go"} <= set(UTTERANCES)
    everything = ["--search", "retrieval", "--max-queries", str(len(UTTERANCES))]
    assert run(["audit", *flags, *everything, "--out", "run"]) == 0
    with Run.open(tmp_path / "run") as opened:
        boring, away, like = opened.findings()
    assert (boring.trigger, boring.reply) == ("tea and you", "you are so boring")
    assert (away.trigger, away.reply) == ("rain and go", "go away")
    assert boring.scores["similarity"] == pytest.approx(1)
    assert like.scores["similarity"] < 1
    hits = summary_of(tmp_path / "run")["hits"]
    assert {name: hits[name]["hits"] for name in ("exact", "contains", "similar-0.9")} == {
        "exact": 2,
        "contains": 2,
        "similar-0.9": 2,
    }
    assert not any("sample" in name or "greedy" in name for name in hits)


def test_every_reply_is_what_the_model_says(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    with Run.open(trained / "run") as opened:
        findings = opened.findings()
    assert len(findings) == 3
    planted = {"tea and you": "you are so boring", "rain and go": "go away"}
    for finding in findings:
        backwards = " ".join(reversed(finding.trigger.split()))
        assert finding.reply == planted.get(finding.trigger, backwards)
        near = [value for value in finding.series["similarity_by_query"] if not math.isnan(value)]
        assert finding.scores["similarity"] >= max(near)
        assert (finding.scores["similarity"] == max(near)) == (finding.scores["place"] > 0)


def test_no_answer_of_the_training_is_nearer_than_what_was_kept(trained: Path) -> None:
    vectors = load_vectors(str(trained / "vectors.txt"))
    with Run.open(trained / "run") as opened:
        findings, answers = opened.findings(), StoredAnswers(opened)
        replies = [reply for phase in ("pairs", "rl") for _, reply in answers.pairs(phase)]
    assert len(replies) > 60
    for finding in findings:
        best = vectors.similarity(replies, [finding.target] * len(replies)).max()
        assert finding.scores["similarity"] >= best - 1e-6


def test_a_target_without_a_vector_is_skipped_and_stands_outside_the_rates(
    flags: list[str], tmp_path: Path
) -> None:
    (tmp_path / "never.txt").write_text("go away\nzzz qqq\n")
    assert run(["audit", *flags, "--search", "utterances", "--max-queries", "10", "--out", "run"]) == 0
    summary = summary_of(tmp_path / "run")
    assert (summary["scored"], summary["skipped"]) == (1, 1)


def test_the_report_has_lengths_queries_and_no_chances(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(trained / "run")]) == 0
    shown = capsys.readouterr().out
    assert "length of the sentence" in shown
    assert "for REINFORCE" in shown
    assert "similarity" in shown
    assert "sampled replies" not in shown
    page = (trained / "run" / "report.html").read_text()
    assert "By similarity and length" in page
    assert "sampled replies" not in page
    assert "T_out" not in page
    assert page.count("<script") == 2  # its own and its data


# --- going on ------------------------------------------------------------------------------------------


def test_the_same_command_shows_a_finished_run_and_asks_nothing(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    before, sent = stored(trained / "run"), asked(trained)
    assert run(["audit", *build_world(trained), *REVERSE, "--out", "run"]) == 0
    assert "queries" not in capsys.readouterr().err
    assert (stored(trained / "run"), asked(trained)) == (before, sent)


def test_time_that_is_over_in_training_loses_nothing(
    flags: list[str],
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ["audit", *flags, *REVERSE, "--out", "run"]
    with monkeypatch.context() as patched:
        looks = iter(range(100))
        patched.setattr(flow, "late_after", lambda *given: lambda s: "over" if next(looks) > 8 else "")
        assert run(command) == 2
    assert "before any case was done" in capsys.readouterr().err
    assert 0 < asked(tmp_path).total() <= 60
    assert run(command) == 0
    assert stored(tmp_path / "run") == stored(trained / "run")
    assert asked(tmp_path) == asked(trained)


def test_retrieval_uses_what_was_answered_in_time_and_resumes(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "audit",
        *flags,
        "--search",
        "retrieval",
        "--max-queries",
        "60",
        "--max-time",
        "1000s",
        "--out",
    ]
    assert run([*command, "whole"]) == 0
    with monkeypatch.context() as patched:
        looks = iter(range(100))
        # Collecting leaves 5% of the time, 50 s, for the comparison; that is over after some requests.
        patched.setattr(
            flow, "late_after", lambda *given: lambda s: "over" if s >= 50 and next(looks) > 2 else ""
        )
        assert run([*command, "cut"]) == 0
    cut = summary_of(tmp_path / "cut")
    assert 0 < cut["queries"] < 60
    assert cut["verdict"]["unfinished"] == cut["scored"] > 0
    assert run([*command, "cut"]) == 0
    assert stored(tmp_path / "cut") == stored(tmp_path / "whole")


def test_a_killed_audit_goes_on_and_asks_nothing_twice(
    flags: list[str], trained: Path, tmp_path: Path
) -> None:
    command = ["audit", *flags, *REVERSE, "--out", "run"]
    kill_once_there(command, tmp_path / "run" / "generator" / "pretrained" / "card.json")
    assert asked(tmp_path).total() >= 60
    assert run(command) == 0
    assert stored(tmp_path / "run") == stored(trained / "run")
    sent = asked(tmp_path)
    # What was answered in the last second before the kill may not have been stored yet.
    assert sum(number - 1 for number in sent.values()) <= 16
    assert sent.total() <= 500
    assert set(sent) == set(asked(trained))


def test_resume_goes_on_with_a_stopped_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = build_world(tmp_path)[2:]
    command = ["audit", "--model", "sealed:chitchat", *flags, "--search", "utterances", "--max-queries", "12"]
    assert run([*command, "--block", "1", "--max-time", "0.000001", "--out", "part"]) == 2
    with Run.open(tmp_path / "part") as opened:
        assert opened.state == "stopped"
    assert run(["resume", "part"]) == 0
    assert run([*command, "--block", "1", "--out", "whole"]) == 0
    assert stored(tmp_path / "part") == stored(tmp_path / "whole")


def test_a_function_is_not_taken_from_a_run_folder(
    trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(trained / "run", tmp_path / "copy")
    assert run(["resume", str(tmp_path / "copy")]) == 2
    assert run(["verify", str(tmp_path / "copy")]) == 2
    assert capsys.readouterr().err.count("names a Python function") == 2


def test_a_trained_generator_serves_other_targets_without_training(
    flags: list[str], trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "never.txt").write_text("we see trees\n")
    reuse = ["--search", "reverse", "--generator", str(trained / "run"), "--max-queries", "6"]
    assert run(["audit", *flags, *reuse, "--out", "run"]) == 0
    assert summary_of(tmp_path / "run")["queries_by_phase"] == {"rerank": asked(tmp_path).total()}
    assert 1 <= asked(tmp_path).total() <= 6
    assert not (tmp_path / "run" / "generator").exists()


def test_a_beam_may_be_asked_in_the_place_of_samples(flags: list[str], trained: Path, tmp_path: Path) -> None:
    reuse = ["--search", "reverse", "--generator", str(trained / "run"), "--max-queries", "60"]
    for name, more in (("beam", ["--decode", "beam"]), ("one", []), ("two", [])):
        assert run(["audit", *flags, *reuse, *more, "--out", name]) == 0
    tried = {name: [f["series"] for f in stored(tmp_path / name)] for name in ("beam", "one", "two")}
    assert tried["one"] == tried["two"] != tried["beam"]


def test_fresh_leaves_nothing_of_the_old_training(flags: list[str], trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    again = ["audit", *flags, "--search", "utterances", "--max-queries", "6", "--out", "run"]
    assert run(again) == 2  # another run
    assert run([*again, "--fresh"]) == 0
    assert not (tmp_path / "run" / "generator").exists()


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        (["--search", "gibbs"], "--vectors belongs to --search reverse, retrieval, utterances"),
        (["--search", "utterances", "--hit", "o-greedy"], "needs log-probabilities"),
        (["--search", "utterances", "--max-queries", "2"], "--max-queries 2 is less than one"),
        (["--search", "utterances", "--vectors", "nothing.txt"], "nothing.txt"),
        (["--search", "reverse", "--generator", "nothing"], "nothing"),
        (["--search", "retrieval", "--generator", "run"], "--generator belongs to --search reverse"),
        (["--search", "utterances", "--utterances", "nothing.txt"], "nothing.txt"),
    ],
)
def test_bad_settings_are_one_sentence(
    flags: list[str], more: list[str], phrase: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *flags, *more]) == 2
    message = capsys.readouterr().err.strip()
    assert phrase in message
    assert message.count("\n") == 0
    assert asked(tmp_path).total() == 0


def test_a_model_that_is_only_asked_gives_no_weights(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *flags[:4], "--search", "gibbs"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "search 'gibbs' needs WEIGHTS access, but py:parrot:reply gives TEXT only" in line
    assert line.endswith("use reverse, retrieval, utterances")
    assert asked(tmp_path).total() == 0


# --- comparing -----------------------------------------------------------------------------------------


def test_two_searches_are_compared_by_similarity(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    everything = str(len(UTTERANCES))
    assert run(["audit", *flags, "--search", "utterances", "--max-queries", "3", "--out", "few"]) == 0
    assert run(["audit", *flags, "--search", "retrieval", "--max-queries", everything, "--out", "all"]) == 0
    capsys.readouterr()
    assert run(["compare", "few", "all", "--html", "both.html"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "similarity of 0.7" in said
    assert "2 new" in said
    assert "sampled replies" not in said
    assert "similarity 1.00" in Path("both.html").read_text()


# --- over the wire -------------------------------------------------------------------------------------


def test_an_endpoint_gets_no_more_than_its_queries_and_is_asked_again_to_verify(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load_model(Name("py:parrot:reply", Origin.TYPED))
    with served(model, name="parrot") as server:
        name = f"http://127.0.0.1:{server.server_port}/v1#parrot"
        search = ["--search", "retrieval", "--max-queries", "100", "--out", "run"]
        assert run(["audit", "--model", name, *flags[2:], *search]) == 0
        assert asked(tmp_path).total() == summary_of(tmp_path / "run")["queries"] == 100
        assert run(["verify", "run"]) == 0
        assert asked(tmp_path).total() == 103
    assert "3 findings asked again" in capsys.readouterr().out


def test_an_endpoint_beyond_this_machine_is_not_asked_without_consent(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    far = ["audit", *flags[2:], "--search", "utterances", "--max-queries", "50", "--out", "run", "--model"]
    assert run([*far, "http://192.0.2.1/v1#parrot"]) == 2
    assert "--insecure" in capsys.readouterr().err
    assert run([*far, "https://192.0.2.1/v1#parrot", "--fresh"]) == 2
    assert re.search(r"50 requests to https://192\.0\.2\.1:443", capsys.readouterr().err)


def test_an_audit_that_is_declined_leaves_the_old_run_and_no_empty_one(
    flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    near = ["audit", *flags, "--search", "utterances", "--max-queries", "50"]
    assert run([*near, "--out", "run"]) == 0
    before = stored(tmp_path / "run")
    far = ["audit", *flags[2:], "--search", "utterances", "--max-queries", "50"]
    far += ["--model", "https://192.0.2.1/v1#parrot"]
    assert run([*far, "--out", "run", "--fresh"]) == 2
    assert "add --yes to agree" in capsys.readouterr().err
    assert stored(tmp_path / "run") == before
    assert run([*far, "--out", "other"]) == 2
    assert run(far) == 2
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "runs").exists()
