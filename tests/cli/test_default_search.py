"""Without --search the search follows from what the model lets us see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.registry import default_search
from backtalk.types import Access


def test_every_access_has_a_search_that_needs_no_more() -> None:
    from backtalk.registry import SEARCHES

    for access in Access:
        name, why = default_search(access)
        assert SEARCHES[name].access <= access
        assert why


@pytest.mark.parametrize(
    ("model", "search", "more"),
    [
        ("chitchat", "gibbs", ["--top", "4", "--sweeps", "1", "--length", "3"]),
        ("sealed:chitchat", "retrieval", ["--max-queries", "40", "--no-judge"]),
    ],
)
def test_the_search_follows_the_model_and_a_line_says_why(
    model: str,
    search: str,
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["audit", "--model", model, "--limit", "2", "--device", "cpu", *more, "--out", "a"]) == 0
    assert json.loads(Path("a/summary.json").read_text())["search"] == search
    assert f"Search: {search}" in capsys.readouterr().err
