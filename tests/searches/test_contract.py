"""The contract over every registered search: rebuilt from its settings, the same again, alone as in a batch,
within its budget, resumed where it stopped, and verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backtalk.api import Run
from backtalk.registry import SEARCHES
from backtalk.searches.ast.config import Ast
from backtalk.searches.beam import Beam
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.random import Random
from backtalk.searches.relax import Relax
from backtalk.searches.reverse.searches import Retrieval, Reverse, Utterances
from backtalk.specs import ModelOptions
from backtalk.testing import check_search
from tests.searches.reverse.worlds import build_world

pytestmark = pytest.mark.usefixtures("one_thread")
TARGETS = ["go away", "you are so boring", "i like you"]


@pytest.fixture
def contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))
    build_world(tmp_path)
    return tmp_path


def on_weights(search: Any) -> dict[str, Any]:
    """The embedded model: it has a language model, so an io-hit can be aimed at."""
    return {"search": search, "model": "chitchat", "cases": TARGETS, "hit": "io-sample-min-k1"}


def by_asking(search: Any) -> dict[str, Any]:
    return {"search": search, "model": "py:parrot:reply", "cases": "never.txt"}


ASKING: dict[str, Any] = {"vectors": "vectors.txt", "utterances": "said.txt", "judge": False}
TABLE: dict[str, dict[str, Any]] = {
    "gibbs": on_weights(Gibbs(3, top=4, sweeps=2)),
    "gcg": on_weights(Gcg(3, top=4, sweeps=2)),
    "beam": {"search": Beam(3, top=4, sweeps=2), "hit": "io-sample-avg-k1"},
    "random": on_weights(Random(3, top=4, sweeps=2)),
    "relax": on_weights(Relax(length=3, steps=12)),
    "reverse": by_asking(Reverse(max_queries=120, beam=5, **ASKING)),
    "retrieval": by_asking(Retrieval(max_queries=60, **ASKING)),
    "utterances": by_asking(Utterances(max_queries=30, **ASKING)),
    "ast": {
        "search": Ast(openings="openings", turns=2, turn_tokens=7, steps=2, experience=4, batch=2, rank=2),
        "limit": 3,
        "options": ModelOptions(template="plain"),
    },
}
"""Each search at a small size, with what it is run on."""


def test_every_registered_search_is_in_the_table() -> None:
    assert TABLE.keys() == SEARCHES.keys()


def check(name: str, folder: Path, **more: Any) -> Run:
    row = {**TABLE[name], **more}
    search, model = row.pop("search"), row.pop("model")
    assert search.needs == SEARCHES[name].access
    return check_search(search, model, row.pop("cases", "mal"), folder / "runs", **row)


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if "model" in row])
def test_a_search_keeps_the_contract(name: str, contract: Path) -> None:
    check(name, contract)


def test_beam_keeps_the_contract(contract: Path, chatterbox: Path) -> None:
    pairs = contract / "pairs.tsv"
    pairs.write_text("hello there\tgood day\nhow are you\tfine thanks\n")
    check("beam", contract, model=f"hf/{chatterbox}", cases=TARGETS, reference=str(pairs))


def test_ast_keeps_the_contract(contract: Path) -> None:
    pytest.importorskip("peft", reason="peft is not installed")
    from tests.searches.ast.worlds import OPENINGS, plant

    (contract / "tiny").mkdir()
    plant(contract / "tiny", steps=40)
    (contract / "openings").mkdir()
    for part, own in {"train": OPENINGS[:8], "dev": OPENINGS[8:12], "test": OPENINGS[12:]}.items():
        (contract / "openings" / f"{part}.txt").write_text("\n".join(own) + "\n")
    run = check("ast", contract, model="hf/tiny")
    assert {finding.kind for finding in run.findings()} == {"opening"}
