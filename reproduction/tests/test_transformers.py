"""The study of white-box search on a Hugging Face model, from end to end on a tiny one."""

import json
from pathlib import Path

import pytest
from tests.planted import greeting_pairs, polite_pairs
from tests.training.transformers import tiny_network, train_tokenizer

from backtalk.audit import reference
from backtalk.data.targets import load_mal
from reproduction.__main__ import run_command as run

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_study_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(reference, "SHIPPED_PAIRS", 6)
    texts = [text for pair in greeting_pairs() + polite_pairs() for text in pair]
    tokenizer = train_tokenizer(Path("tiny"), texts)
    tiny_network("llama", len(tokenizer)).save_pretrained("tiny")
    command = ["transformers", "--model", "hf/tiny", "--size", "mini", "--device", "cpu"]
    command += ["--out", "study"]
    assert run(command) == 0
    found = json.loads(Path("study/transformers.json").read_text())["parts"]
    assert set(found) == {"speed", "greedy", "o", "io", "hardening"}
    for name in ("greedy", "o", "io"):
        result = found[name]["result"]
        assert result["n"] == result["found"] == 10
        assert 0 < result["candidates"] <= 10 * 3 * 4
        assert result["verified"][0] == result["verified"][1]
        assert not result["problems"]
    fresh = found["hardening"]["result"]["fresh"]
    assert sum(fresh[part][0]["n"] for part in ("train", "held_out")) < 10  # the rest chose
    page = Path("study/transformers.md").read_text()
    assert page.count("| criterion |") == 1
    assert "Perplexity of" in page
    assert str(tmp_path) not in page
    shown = [target.text for target in load_mal() if len(target.text) > 12]
    assert not any(text in page for text in shown)  # examples are masked
    before = Path("study/results/hardening.json").read_bytes()
    assert run(command) == 0
    assert Path("study/results/hardening.json").read_bytes() == before
