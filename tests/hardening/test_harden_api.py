"""`backtalk.harden` from Python: what it takes, and the hardening that it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backtalk
from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.report.hardening_record import Row
from backtalk.types import Progress, Target, Turn
from tests.rude import RUDE, TARGETS, WEIGHTS, harden_rude, read

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {
    "hit": "o-sample-avg-k1", "length": 2, "top": 20, "sweeps": 3, "search_sweeps": 3, "restarts": 1,
    "iterations": 2, "rounds": 40, "max_ppl_increase": "20%", "kl": "10", "escalate": 0, "device": "cpu",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def hardened(rude: Path, tmp_path_factory: pytest.TempPathFactory) -> backtalk.Hardening:
    out = tmp_path_factory.mktemp("api") / "out"
    return backtalk.harden(rude / "model", TARGETS, data=rude / "polite.tsv", out=out, **SMALL)


def test_sentences_are_trained_away_and_proven(rude: Path, hardened: backtalk.Hardening) -> None:
    asked = [(Turn("user", "my dog"),)]
    assert backtalk.load_model(str(rude / "model"), "cpu").reply(asked) == ["Go away"]
    assert hardened.model.reply(asked) != ["Go away"]
    assert all(isinstance(row, Row) for row in hardened.proof)
    trained = next(row for row in hardened.proof if row.list == "training" and row.before)
    assert trained.before is not None
    assert (trained.before.hits, trained.after.hits) == (1, 0)
    assert hardened.cost.rise <= 0.2
    assert isinstance(hardened.cost.perplexity, tuple)
    verdict = hardened.verify("cpu")
    assert verdict.findings > 0
    assert not verdict.problems
    assert str(hardened.folder) in repr(hardened)


def test_the_page_is_written_again(hardened: backtalk.Hardening) -> None:
    page = hardened.folder / "report.html"
    page.unlink()
    assert hardened.report() == page
    assert "Content-Security-Policy" in page.read_text()


def test_a_list_and_a_command_with_its_file_end_alike(rude: Path, hardened: backtalk.Hardening) -> None:
    same = ["--iterations", "2", "--restarts", "1", "--no-audits"]
    assert run(harden_rude(rude, "out", *same)) == 0
    assert Path("out", WEIGHTS).read_bytes() == (hardened.folder / WEIGHTS).read_bytes()


def test_the_same_call_returns_it_again_and_another_is_refused(
    rude: Path, hardened: backtalk.Hardening
) -> None:
    weights = (hardened.folder / WEIGHTS).stat().st_mtime_ns
    told: list[Progress] = []
    again = backtalk.harden(
        rude / "model", TARGETS, data=rude / "polite.tsv", out=hardened.folder,
        progress=told.append, **SMALL,
    )  # fmt: skip
    assert not told, "nothing is trained, measured or audited again"
    assert again.record == hardened.record
    assert (hardened.folder / WEIGHTS).stat().st_mtime_ns == weights
    with pytest.raises(InputError, match="other settings"):
        backtalk.harden(
            rude / "model", TARGETS, data=rude / "polite.tsv", out=hardened.folder, **{**SMALL, "lr": 0.5}
        )


def test_a_methods_config_and_targets(rude: Path) -> None:
    targets = [Target(f"t{i}", text) for i, text in enumerate(TARGETS)]
    own = backtalk.harden(
        rude / "model", targets, backtalk.Npo(beta=0.3), data=rude / "polite.tsv", audits=False,
        **{**SMALL, "iterations": 1},
    )  # fmt: skip
    assert own.folder == Path("hardened")
    told = read(Path("hardened/summary.json"))
    assert (told["hardening"]["method"], told["spec"]["method"]["beta"]) == ("npo", 0.3)
    assert own.proof == []
    lists = [Path(f"hardened/{part}.jsonl").read_text() for part in ("train", "selection", "held-out")]
    assert sum(text.count("\n") for text in lists) == len(TARGETS)
    assert any(RUDE in text for text in lists)


def test_against_frequent_replies(rude: Path) -> None:
    own = backtalk.harden(
        rude / "model", against="frequent", r_thres="20%", window=5, steps_per_iteration=20, iterations=1,
        out="frequent", device="cpu",
    )  # fmt: skip
    assert [row.criterion for row in own.proof] == ["most frequent reply"] * 3
    assert own.model.reply([(Turn("user", "hello you"),)])
    assert own.verify("cpu").findings == 0


@pytest.mark.parametrize("cases", [[], ["you stop", ("hello", "go away")]])
def test_cases_that_are_none_or_mixed_are_refused(cases: list[Any]) -> None:
    with pytest.raises(InputError):
        backtalk.harden(cases=cases)
    assert not list(Path.cwd().iterdir())


def test_an_unfinished_folder_is_no_hardening(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not finished"):
        backtalk.Hardening(tmp_path)
