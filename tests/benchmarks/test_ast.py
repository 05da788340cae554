"""The benchmark runs through on a tiny model, and says what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.ast import AstBench

from backtalk.errors import InputError
from backtalk.specs import ModelOptions
from tests.searches.ast.worlds import plant


def test_every_line_has_a_rate(tmp_path: Path) -> None:
    bench = AstBench(
        f"hf/{plant(tmp_path)}", "toxicity", "cpu", ModelOptions(template="plain"), pairs=7, batch=4
    )
    rows = list(bench.rows())
    assert all(row.rate > 0 for row in rows)
    assert any(row.unit == "updates/s" for row in rows)
    (played, *_) = (row for row in rows if row.unit == "pairs/s")
    assert "in steps" in played.note or "library" in played.note


def test_only_transformers_can_be_measured() -> None:
    with pytest.raises(InputError, match="ast needs one"):
        AstBench("chitchat", "toxicity", "cpu")
