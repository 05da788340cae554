"""The benchmark at a toy size: all rows are there, and their shares are what they say."""

from __future__ import annotations

import pytest

from backtalk import bench_scorer
from backtalk.bench import SHAPES, Shape, bench_search
from backtalk.cli import run
from backtalk.cli.survey import BENCH_SHAPES

TOY = Shape(50, 8, 12, length=4, target=3, top=10, rows=2)


@pytest.mark.parametrize("attention", [True, False])
def test_every_variant_is_measured_against_its_ceiling(attention: bool) -> None:
    rows = {row.name: row for row in bench_search(TOY, attention, "cpu")}
    assert len(rows) == 6
    reuse = rows["batched, prefix reused"]
    assert reuse.ceiling_share == reuse.candidates_per_s / rows["ceiling"].candidates_per_s
    with_lm = rows["batched, prefix reused, language-model term"]
    ceiling = rows["ceiling with language model"]
    assert with_lm.ceiling_share == with_lm.candidates_per_s / ceiling.candidates_per_s
    assert ceiling.ceiling_share is None
    assert all(row.candidates_per_s > 0 for row in rows.values())
    assert rows["batched"].candidates_per_s > rows["one at a time"].candidates_per_s


def test_the_command_knows_the_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(SHAPES) == set(BENCH_SHAPES)
    assert run(["bench", "search", "--shape", "nosuch"]) == 2
    assert "nosuch" in capsys.readouterr().err


def test_a_scorer_is_timed_on_sentences_and_on_longer_texts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_scorer, "SENTENCES", {"cpu": 400, "cuda": 400})
    assert run(["bench", "scorer", "--scorer", "toxicity-second", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("toxicity-second, cpu,")
    assert out.count("texts/s of") == 3
    assert run(["bench", "scorers"]) == 2
    assert "did you mean 'scorer'" in capsys.readouterr().err
