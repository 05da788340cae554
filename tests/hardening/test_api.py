"""`backtalk.harden` of a Hugging Face model: findings as pairs or a run, and the hardening it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backtalk
from backtalk.errors import InputError
from backtalk.report.hardening_record import Row
from backtalk.scorers.cost import Cost
from backtalk.types import Turn
from tests.hardening.commands import audits_of, read
from tests.planted import RUDE, greeting_pairs

pytestmark = pytest.mark.usefixtures("one_thread", "in_an_empty_folder")


def harden(place: Path, cases: Any, **more: Any) -> backtalk.Hardening:
    given = {
        "data": place / "keep.jsonl", "reference": str(place / "reference.jsonl"), "out": "out",
        "iterations": 2, "max_ppl_increase": "10%", "avoid": "none", "rank": 4, "alpha": 8.0, "lr": 0.0005,
        "kl": "3", "escalate": 0, "max_reply": 12, "device": "cpu",
    }  # fmt: skip
    return backtalk.harden(f"hf/{place / 'gpt2'}", cases, **{**given, **more})


def test_pairs_of_an_input_and_a_reply(place: Path, planted: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told: list[backtalk.Progress] = []
    done = harden(place, greeting_pairs(), method=backtalk.Npo(beta=0.2), progress=told.append)
    assert capfd.readouterr() == ("", "")
    assert told
    assert done.folder == Path("out")
    rows = {(row.list, row.search): row for row in done.proof}
    assert all(isinstance(row, Row) for row in done.proof)
    held_out = rows["held-out", "given"]
    assert held_out.before is not None
    assert (held_out.before.hits, held_out.before.n, held_out.after.hits) == (12, 12, 0)
    assert not rows["held-out", "gcg"].trained_with
    assert isinstance(done.cost, Cost)
    assert done.cost.perplexity[1] <= 1.1 * done.cost.perplexity[0]
    assert read(Path("out/summary.json"))["hardening"]["method"] == "npo"
    (said,) = done.model.reply([(Turn("user", "hello you"),)])
    assert said != RUDE
    assert (done.verify("cpu").problems, done.report()) == ([], Path("out/report.html"))
    # The same call finds it; other settings in the same folder are refused.
    weights = Path("out/model/adapter_model.safetensors").stat().st_mtime_ns
    again = harden(place, greeting_pairs(), method=backtalk.Npo(beta=0.2))
    assert again.record == done.record
    assert Path("out/model/adapter_model.safetensors").stat().st_mtime_ns == weights
    with pytest.raises(InputError, match="beta"):
        harden(place, greeting_pairs(), method=backtalk.Npo(beta=0.3))


def test_a_run_in_the_place_of_pairs(place: Path, hardened: Path) -> None:
    asked = backtalk.Run(audits_of(hardened, "train")[0])
    done = harden(place, asked, iterations=1, audits=False, measure=4, method="unlikelihood")
    told = done.record["hardening"]
    assert told["findings"] == str(asked.folder)
    assert sum(told["lists"].values()) == 20
    assert done.proof == []


def test_cases_of_two_kinds_are_refused(place: Path, planted: Path) -> None:
    mixed: list[Any] = ["go away", ("hello", RUDE)]
    with pytest.raises(InputError, match="one kind"):
        harden(place, mixed)
    with pytest.raises(InputError, match="no cases"):
        harden(place, [])
