"""The proof is about the weights in the folder: other weights are refused, and every audit is recomputed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import backtalk
from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.hardening.proof import verify_hardening
from backtalk.store import Run
from tests.forging import forge_facts
from tests.hardening.commands import command, pages_rows, read, rows_of

pytestmark = pytest.mark.usefixtures("one_thread", "in_an_empty_folder")


@pytest.fixture(scope="module")
def merged(place: Path, planted: Path) -> Path:
    assert run(merging(place, place / "merged")) == 0
    return place / "merged"


def merging(place: Path, out: Path) -> list[str]:
    return command(place, str(out), "--merge", "--iterations", "1", "--measure", "4")


def adapting(place: Path, out: Path) -> list[str]:
    return command(place, str(out))


@contextmanager
def tampered(file: Path) -> Iterator[None]:
    """One number of one tensor is another; then everything is as it was."""
    whole = file.read_bytes()
    tensors = load_file(file)
    first = min(tensors)
    tensors[first].view(-1)[0] += 0.01
    save_file(tensors, file, {"format": "pt"})
    assert file.stat().st_size == len(whole)
    try:
        yield
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize(
    ("name", "weights", "words"),
    [("hardened", "adapter_model.safetensors", adapting), ("merged", "model.safetensors", merging)],
)
def test_other_weights_than_the_proven_ones_are_refused(
    name: str,
    weights: str,
    words: Callable[[Path, Path], list[str]],
    place: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out: Path = request.getfixturevalue(name)
    told = (out / "summary.json").read_bytes()
    refused = [["report", str(out)], ["verify", str(out), "--device", "cpu"], words(place, out)]
    with tampered(out / "model" / weights):
        for one in refused:
            capsys.readouterr()
            assert run(one) == 2, one
            assert "weights" in capsys.readouterr().err.splitlines()[-1]
        with pytest.raises(InputError, match="weights"):
            backtalk.Hardening(out)
    assert (out / "summary.json").read_bytes() == told
    (out / "report.html").unlink()
    assert run(["report", str(out)]) == 0
    assert (out / "report.html").exists()
    assert backtalk.Hardening(out).record["weights"] == read(out / "summary.json")["weights"]
    assert run(words(place, out)) == 0


def test_every_audit_of_the_proof_is_recomputed(hardened: Path, merged: Path) -> None:
    for out in (hardened, merged):
        rows = rows_of(out)
        runs = {row[side] for row in rows for side in ("run_before", "run")}
        assert len(runs) == 8  # given inputs and gcg, on two lists, of two models
        findings = 0
        for one in runs:
            with Run.open(out / one) as stored:
                findings += len(stored.findings())
        verdict = verify_hardening(out, "cpu")
        assert (verdict.findings, verdict.problems) == (findings, [])
        assert verdict.confirmed == verdict.hits >= sum(row["before"]["hits"] for row in rows)
        assert run(["verify", str(out), "--device", "cpu"]) == 0


@pytest.mark.parametrize("side", ["run_before", "run"])
def test_a_forged_audit_is_found(side: str, hardened: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(hardened, "copy")
    forged = rows_of(hardened, "training", "gcg")[0][side]
    forge_facts(Path("copy", forged), thresholds={"T_out": -50.0, "T_in": None})
    assert run(["verify", "copy", "--device", "cpu"]) == 3
    assert f"{forged}: " in capsys.readouterr().out


def test_the_page_names_the_rows_of_the_proof(hardened: Path, merged: Path) -> None:
    for out in (hardened, merged):
        rows = rows_of(out)
        assert [(row["list"], row["search"], row["trained_with"]) for row in rows] == [
            ("held-out", "given", True),
            ("training", "given", True),
            ("held-out", "gcg", False),
            ("training", "gcg", False),
        ]
        assert pages_rows(out) == rows


def test_without_audits_nothing_is_proven_and_the_same_command_adds_them(place: Path, planted: Path) -> None:
    own = command(place, "out", "--iterations", "1", "--measure", "4")
    assert run([*own, "--no-audits"]) == 0
    told = read(Path("out/summary.json"))
    assert (told["proof"], told["held_out"]) == ([], None)
    assert not Path("out/audits").exists()
    assert run(own) == 0
    proven = read(Path("out/summary.json"))
    assert len(proven["proof"]) == 4
    for part in ("weights", "cost", "hardening"):
        assert proven[part] == told[part]
