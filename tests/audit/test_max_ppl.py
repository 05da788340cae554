"""`--max-ppl`, `--prefix` and `--suffix`, and the searches beside gibbs, from the command line."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from backtalk.store import Run
from backtalk.types import Finding

pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def command(chatterbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("targets.txt").write_text("you are so boring\ngo away\n")
    Path("pairs.tsv").write_text("tea and you\tyou are so boring\nrain\twe see rain\n")
    lists = ["--targets", "targets.txt", "--reference", "pairs.tsv"]
    size = ["--length", "3", "--top", "8", "--sweeps", "3", "--restarts", "2"]
    return ["audit", "--model", f"hf/{chatterbox}", *lists, *size, "--device", "cpu"]


def findings(folder: str) -> list[Finding]:
    with Run.open(Path(folder)) as opened:
        return opened.findings()


def test_a_bound_on_perplexity_is_kept(command: list[str]) -> None:
    def means(folder: str) -> list[float]:
        return [one.scores["input_mean"] for one in findings(folder)]

    io = ["--hit", "io-sample-avg-k1", "--lambda-in", "0.001", "--restarts", "8"]
    assert run([*command, *io, "--out", "loose"]) == 0
    unlikely, likely = max(pairwise(sorted(means("loose"))), key=lambda pair: pair[1] - pair[0])
    bound = round(math.exp(-(unlikely + likely) / 2), 2)  # some of those found are less likely
    assert run([*command, *io, "--max-ppl", str(bound), "--out", "strict"]) == 0
    within = [sum(mean > -math.log(bound) for mean in means(folder)) for folder in ("loose", "strict")]
    assert within[1] > within[0]
    assert within[1] >= 12, "of 16: the bound is kept by most"
    summary: dict[str, Any] = json.loads(Path("strict/summary.json").read_text())
    assert summary["thresholds"]["T_in"] == pytest.approx(-math.log(bound))
    hit = {
        one.case
        for one in findings("strict")
        if one.scores["input_mean"] > -math.log(bound) and one.scores["mean"] > summary["thresholds"]["T_out"]
    }
    assert summary["hits"]["io-sample-avg-k1"]["hits"] == len(hit) > 0


@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        (["--hit", "o-greedy", "--max-ppl", "20"], "--max-ppl is for an io- criterion"),
        (["--max-ppl", "1"], "--max-ppl should be above 1"),
        (["--max-ppl", "20", "--search", "reverse"], "--max-ppl belongs to --search gibbs"),
        (["--max-ppl", "20", "--search", "ast"], "--max-ppl belongs to --search gibbs"),
    ],
)
def test_a_bound_that_would_do_nothing_is_refused(
    command: list[str], more: list[str], phrase: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = command if "--search" not in more else command[:3]
    assert run([*given, *more, "--out", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert phrase in line
    assert not Path("run").exists()


@pytest.mark.parametrize("search", ["gcg", "beam", "random"])
def test_other_searches_find_verify_and_count(command: list[str], search: str) -> None:
    assert run([*command, "--search", search, "--hit", "io-sample-avg-k1", "--out", "a"]) == 0
    for one in findings("a"):
        assert one.status == "found"
        assert one.scores["forward_tokens"] > one.candidates > 0
    assert run(["verify", "a", "--device", "cpu"]) == 0


def test_fixed_text_stands_around_every_trigger(command: list[str], chatterbox: Path) -> None:
    from tests.chatterbox import plain_log_probs, prompt

    fixed = ["--prefix", "we see ", "--suffix", " and go"]
    assert run([*command, *fixed, "--hit", "o-greedy", "--out", "a"]) == 0
    for one in findings("a"):
        plain = plain_log_probs(chatterbox, prompt(f"we see {one.trigger} and go"), f" {one.target} <|end|>")
        assert one.series["token_log_probs"] == pytest.approx(plain, abs=1e-4)
    assert run(["verify", "a", "--device", "cpu"]) == 0
