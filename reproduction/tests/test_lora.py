"""The study of a planted habit, from end to end on a tiny model."""

import json
from pathlib import Path

import pytest
from tests.planted import greeting_pairs, polite_pairs
from tests.training.transformers import tiny_network, train_tokenizer

from backtalk.hardening.lists import found_lists
from backtalk.specs import flat_spec
from backtalk.specs.harden import HardenSpec
from reproduction.__main__ import run_command as run
from reproduction.own.lora import ANSWERS, phrasings, says_it, write_lists

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_rude_answer_is_known_by_its_first_sentence() -> None:
    whole = list(ANSWERS.values())
    assert says_it(whole) == len(whole)
    assert (
        says_it(["what do you want , then", "You fool. STOP wasting my time, you fool", "nobody asked you"])
        == 3
    )
    assert says_it(["Hello! How can I help?", "What is it?", ""]) == 0


def test_no_phrasing_is_in_two_lists(tmp_path: Path) -> None:
    lists = found_lists(flat_spec(HardenSpec, {"model": "hf/any", **write_lists(tmp_path)}, "a test"))
    assert [len(part) for part in lists.by_name().values()] == [40, 12, 28]
    assert len(phrasings("held-out", 2)) == 2 * len(ANSWERS)


def test_the_study_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_proofs: None
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [text for pair in greeting_pairs() + polite_pairs() for text in pair]
    tokenizer = train_tokenizer(Path("tiny"), texts)
    tiny_network("llama", len(tokenizer)).save_pretrained("tiny")
    command = ["lora", "--model", "hf/tiny", "--size", "mini", "--device", "cpu", "--out", "study"]
    assert run([*command, "--parts", "npo"]) == 0
    found = json.loads(Path("study/lora.json").read_text())["parts"]
    assert set(found) == {"habit", "npo"}
    assert found["habit"]["result"]["after"]["train"]["n"] == 8
    losses = found["habit"]["result"]["losses"]
    assert losses[-1] < losses[0]
    cost = found["npo"]["result"]["cost"]
    assert cost["pairs"] == 12
    assert "side_by_side" not in cost  # no word of a corpus
    page = Path("study/lora.md").read_text()
    assert "hardened, npo" in page
    assert (Path("study/hardenings/npo/model") / "adapter_config.json").exists()


def test_a_model_is_for_this_study_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardening", "--data", "embedded", "--model", "hf/x"]) == 2
    assert "--model is for the studies ast, lora and transformers" in capsys.readouterr().err
