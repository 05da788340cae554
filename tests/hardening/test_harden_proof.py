"""The proof of a hardening: its rows, the weights that it is about, and audits that are made once."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import backtalk
from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.hardening import proof
from backtalk.hardening.subject import Audit
from backtalk.models.folder import load_folder, sha256
from backtalk.report.hardening_record import read_hardening
from backtalk.stats import Rate
from backtalk.store import Run
from tests.rude import WEIGHTS, audits_of, harden_rude, read, trajectory

pytestmark = pytest.mark.usefixtures("one_thread")

BOTH, OUTPUT = "io-sample-avg-k100", "o-sample-avg-k100"
SMALL = ["--hit", BOTH, "--iterations", "1", "--rounds", "10", "--restarts", "1", "--sweeps", "2"]
Command = Callable[[Path], list[str]]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def harden_frequent(rude: Path, out: Path) -> list[str]:
    (rude / "window.yaml").write_text("published: {window: 5}\n")
    return [
        "harden", "--against", "frequent", "--model", str(rude / "model"), "--r-thres", "20%",
        "--config", str(rude / "window.yaml"), "--steps-per-iteration", "20", "--iterations", "2",
        "--lr", "0.01", "--max-ppl-increase", "50%", "--out", str(out), "--device", "cpu",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def hardened(rude: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("proven") / "out"
    assert run(harden_rude(rude, out, *SMALL)) == 0
    return out


@pytest.fixture(scope="module")
def frequent(rude: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("frequent") / "out"
    assert run(harden_frequent(rude, out)) == 0
    return out


@pytest.fixture(params=["targets", "frequent"])
def finished(
    request: pytest.FixtureRequest, rude: Path, hardened: Path, frequent: Path
) -> tuple[Path, Command]:
    """A finished hardening of each kind, and its command for another folder."""
    if request.param == "targets":
        return hardened, lambda out: harden_rude(rude, out, *SMALL)
    return frequent, lambda out: harden_frequent(rude, out)


# --- the weights that were proven ----------------------------------------------------------------------


def swap_weights(model: Path) -> None:
    """Changes one number of a model, its card too, so that it loads; size and time stay."""
    file, card = model / "model.safetensors", model / "card.json"
    tensors, was = load_file(file), file.stat()
    name = sorted(tensors)[0]
    changed = tensors[name].clone()
    changed.view(-1)[0] += 1.0
    save_file({**tensors, name: changed}, file)
    told = json.loads(card.read_text())
    card.write_text(json.dumps({**told, "sha256": sha256(file)}))
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert file.stat().st_size == was.st_size


def test_weights_that_were_not_proven_are_refused(
    finished: tuple[Path, Command], capsys: pytest.CaptureFixture[str]
) -> None:
    source, command = finished
    shutil.copytree(source, "out")
    swap_weights(Path("out/model"))
    load_folder("out/model", "cpu")  # nothing but the proof knows
    page = Path("out/report.html").stat().st_mtime_ns
    summary = Path("out/summary.json").read_text()
    for words in (["report", "out"], ["verify", "out", "--device", "cpu"], command(Path("out"))):
        capsys.readouterr()
        assert run(words) == 2
        assert "not those that were proven" in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(InputError, match="not those that were proven"):
        backtalk.Hardening("out")
    assert Path("out/report.html").stat().st_mtime_ns == page
    assert Path("out/summary.json").read_text() == summary
    shutil.copy(source / WEIGHTS, Path("out", WEIGHTS))
    shutil.copy(source / "model/card.json", "out/model/card.json")
    assert run(["report", "out"]) == 0, "the proven weights are taken again"


def test_untouched_it_is_verified_and_its_page_written_again(finished: tuple[Path, Command]) -> None:
    shutil.copytree(finished[0], "out")
    Path("out/report.html").unlink()
    assert run(["report", "out"]) == 0
    assert "Content-Security-Policy" in Path("out/report.html").read_text()
    assert run(["verify", "out", "--device", "cpu"]) == 0


def test_a_moved_folder_is_verified_with_the_model_in_it(
    rude: Path, hardened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(harden_rude(rude, "here", *SMALL)) == 0  # by a relative name
    elsewhere = Path("elsewhere").absolute()
    shutil.move("here", elsewhere / "there")
    monkeypatch.chdir(elsewhere)
    assert run(["verify", "there", "--device", "cpu"]) == 0
    own = backtalk.Hardening("there")
    assert own.model.fingerprint == load_folder(str(hardened / "model"), "cpu").fingerprint
    assert own.verify("cpu").findings == backtalk.Hardening(hardened).verify("cpu").findings > 0


@pytest.mark.parametrize("damage", [{"proof": 3}, {"proof": [{"run": 5}]}, {"cost": {}}, {"cost": None}])
def test_a_damaged_record_is_one_sentence(
    rude: Path, hardened: Path, damage: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(hardened, "out")
    Path("out/summary.json").write_text(json.dumps({**read(Path("out/summary.json")), **damage}))
    for words in (["verify", "out", "--device", "cpu"], harden_rude(rude, "out", *SMALL)):
        capsys.readouterr()
        assert run(words) == 2
        assert "summary.json is damaged" in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(InputError, match="damaged"):
        assert backtalk.Hardening("out").cost
    assert run(["report", "out"]) == 2


def test_the_model_that_a_record_names_is_not_loaded(hardened: Path) -> None:
    """A summary may come from elsewhere; a name that a caller passes may run code."""
    shutil.copytree(hardened, "out")
    record = {**read(Path("out/summary.json")), "hardened": "py:tests.nowhere:reply"}
    Path("out/summary.json").write_text(json.dumps(record))
    assert backtalk.Hardening("out").model.name == str(Path("out/model"))


def test_other_weights_before_the_summary_get_audits_of_their_own(rude: Path, hardened: Path) -> None:
    """Nothing was proven of them yet: they are audited, and no audit of others counts."""
    shutil.copytree(hardened, "out")
    Path("out/summary.json").unlink()
    swap_weights(Path("out/model"))
    assert run(harden_rude(rude, "out", *SMALL)) == 0
    before, after = audits_of(hardened)[1].name, audits_of(Path("out"))[1]
    assert after.name != before
    rows = read(Path("out/summary.json"))["proof"]
    assert all(row["run"].startswith(f"audits/{after.name}/") for row in rows if row["run"])
    assert run(["verify", "out", "--device", "cpu"]) == 0


def test_a_forged_finding_is_found(hardened: Path) -> None:
    """Also in an audit of the original model."""
    shutil.copytree(hardened, "out")
    database = sqlite3.connect(audits_of(Path("out"))[0] / "train-gibbs-o" / "run.sqlite")
    place, restart, data = database.execute("SELECT place, restart, data FROM findings").fetchone()
    forged = json.loads(data)
    forged["scores"] = {name: value + 1.0 for name, value in forged["scores"].items()}
    where = "UPDATE findings SET data = ? WHERE place = ? AND restart = ?"
    with database:
        database.execute(where, (json.dumps(forged), place, restart))
    database.close()
    assert run(["verify", "out", "--device", "cpu"]) == 3
    assert backtalk.Hardening("out").verify("cpu").problems


def test_a_forged_row_is_found(hardened: Path) -> None:
    shutil.copytree(hardened, "out")
    record = read(Path("out/summary.json"))
    row = next(row for row in record["proof"] if row["before"] and row["before"]["hits"])
    row["before"] = asdict(Rate.of(row["before"]["hits"] - 1, row["before"]["n"]))
    Path("out/summary.json").write_text(json.dumps(record))
    assert run(["verify", "out", "--device", "cpu"]) == 3
    row["before"]["hits"] += 1  # the rate is another's now
    Path("out/summary.json").write_text(json.dumps(record))
    assert run(["verify", "out", "--device", "cpu"]) == 2


# --- its rows ------------------------------------------------------------------------------------------


def test_every_list_search_criterion_and_budget_has_its_row(hardened: Path) -> None:
    rows = backtalk.Hardening(hardened).proof
    both = ("held-out", "training")
    told = [(row.list, row.search, row.criterion, row.trained_with, row.before is None) for row in rows]
    assert told == [
        *((part, "gibbs", BOTH, True, False) for part in both),
        *((part, "gibbs", OUTPUT, False, False) for part in both),  # training aimed at io alone
        *((part, "gcg", OUTPUT, False, False) for part in both),
        *((part, "gibbs", hit, hit == BOTH, True) for hit in (BOTH, OUTPUT) for part in both),
    ]
    assert len({(row.list, row.search, row.criterion, row.budget) for row in rows}) == len(rows)
    sizes = read(hardened / "summary.json")["hardening"]["lists"]
    for row in rows:
        n = sizes["held-out" if row.list == "held-out" else "train"]
        assert row.after.n == n
        assert row.before is None or row.before.n == n
        assert 0 <= row.after.low <= row.after.rate <= row.after.high <= 1


def test_ten_times_the_budget_counts_at_least_the_hits_of_one_time(hardened: Path) -> None:
    rows = backtalk.Hardening(hardened).proof
    for longer in (row for row in rows if row.before is None):
        (once,) = [
            row
            for row in rows
            if row.before
            and (row.list, row.search, row.criterion) == (longer.list, "gibbs", longer.criterion)
        ]
        assert longer.after.hits >= once.after.hits
        assert "10 starts" in longer.budget
        assert "1 start" in once.budget
        if longer.run:  # it searched only what was missed
            with Run.open(hardened / longer.run) as run_:
                assert len(run_.cases) == longer.after.n - once.after.hits


def test_the_planted_sentence_is_a_hit_of_the_original_model(hardened: Path) -> None:
    trained = [row for row in backtalk.Hardening(hardened).proof if row.list == "training" and row.before]
    assert max(row.before.hits for row in trained if row.before and row.criterion == OUTPUT) >= 1


def test_rows_count_what_their_runs_hold(hardened: Path) -> None:
    for row in backtalk.Hardening(hardened).proof:
        for name, rate in ((row.run_before, row.before), (row.run, row.after)):
            if name and row.before:
                with Run.open(hardened / name) as one:
                    assert one.search == row.search
                    assert one.spec["hit"] == row.criterion
                assert rate == backtalk.Run(hardened / name).rates()[row.criterion]


def test_the_rows_of_frequent_replies(frequent: Path) -> None:
    own = backtalk.Hardening(frequent)
    rows = [(row.list, row.search, row.criterion, row.trained_with) for row in own.proof]
    assert rows == [
        ("held-out", "greedy replies", "most frequent reply", True),
        ("training", "greedy replies", "most frequent reply", True),
        ("held-out", "beam search", "most frequent reply", False),
    ]
    greedy = own.proof[0]
    assert greedy.before is not None
    assert (greedy.before.hits, greedy.after.hits) == own.cost.commonest
    assert greedy.after.n == own.cost.pairs
    assert len(read_hardening(own.record).hardening.steps) == 2


# --- audits are made once ------------------------------------------------------------------------------


def test_audits_are_found_again_not_made_again(
    rude: Path, hardened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an audit was made again")

    known = read(hardened / "summary.json")
    monkeypatch.setattr(proof, "audit", refuse)
    assert run(harden_rude(rude, hardened, *SMALL)) == 0
    assert read(hardened / "summary.json") == known


def test_without_audits_the_proof_is_empty_until_they_are_added(
    rude: Path, hardened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(harden_rude(rude, "out", *SMALL, "--no-audits")) == 0
    bare = backtalk.Hardening("out")
    assert bare.proof == []
    assert not Path("out/audits").exists()
    assert bare.verify().findings == 0
    weights = Path("out", WEIGHTS).stat().st_mtime_ns
    assert run(harden_rude(rude, "out", *SMALL)) == 0
    assert Path("out", WEIGHTS).stat().st_mtime_ns == weights
    proven, other = backtalk.Hardening("out"), backtalk.Hardening(hardened)
    assert proven.proof == other.proof
    assert proven.cost == bare.cost == other.cost
    assert trajectory(Path("out")) == trajectory(hardened)


def test_audits_without_time_left_have_no_row(rude: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audited = proof.Prover.run

    def original_only(one: proof.Prover, audits: list[Audit], of_original: bool, deadline: float) -> None:
        audited(one, audits, of_original, deadline if of_original else 0.0)

    monkeypatch.setattr(proof.Prover, "run", original_only)
    assert run(harden_rude(rude, "short", *SMALL)) == 0
    summary = read(Path("short/summary.json"))
    assert (summary["unchanged"], summary["proof"], summary["held_out"]) == (False, [], None)
    assert run(["verify", "short", "--device", "cpu"]) == 0
