"""Audits of Hugging Face models on their weights: gibbs by default, thresholds, verify, resume, time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backtalk.audit import reference
from backtalk.audit.backends import weights
from backtalk.audit.effort import Pace
from backtalk.audit.reference import find_reference
from backtalk.cli import run
from backtalk.data.corpora import reference_pairs
from backtalk.store import Run
from tests.chatterbox import plain_log_probs, prompt
from tests.models.transformer.tiny import CHATML, make_folder

pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = ["--length", "4", "--top", "6", "--sweeps", "2", "--restarts", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(reference, "SHIPPED_PAIRS", 6)
    monkeypatch.chdir(tmp_path)


def targets(tmp_path: Path, *texts: str) -> str:
    path = tmp_path / "targets.txt"
    path.write_text("\n".join(texts) + "\n")
    return str(path)


def summary(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "summary.json").read_text())
    return found


def test_an_audit_finds_what_was_planted_and_verifies(chatterbox: Path, tmp_path: Path) -> None:
    listed = targets(tmp_path, "you are so boring", "go away")
    command = ["audit", "--model", f"hf/{chatterbox}", "--targets", listed, "--hit", "o-greedy"]
    assert run([*command, *SMALL, "--length", "3", "--sweeps", "4", "--restarts", "8", "--out", "a"]) == 0
    found = summary("a")
    assert found["search"] == "gibbs"
    assert found["hits"]["o-greedy"]["hits"] == 2
    assert "io-sample-avg-k1" in found["hits"]  # the model judges its own inputs
    assert found["dtype"] == "float32"
    with Run.open(Path("a")) as stored:
        one = stored.findings()[0]
        assert one.series["loss_by_sweep"][-1] < one.series["loss_by_sweep"][0]
        plain = plain_log_probs(chatterbox, prompt(one.trigger), f" {one.target} <|end|>")
        assert one.series["token_log_probs"] == pytest.approx(plain, abs=1e-4)
    assert run(["verify", "a"]) == 0
    assert run(["report", "a"]) == 0
    assert run(["compare", "a", "a"]) == 0


def test_weights_in_16_bits_decide_in_float32(chatterbox: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network: Any = AutoModelForCausalLM.from_pretrained(chatterbox)
    network.bfloat16().float().save_pretrained(tmp_path / "rounded")
    AutoTokenizer.from_pretrained(chatterbox).save_pretrained(tmp_path / "rounded")
    command = ["audit", "--model", f"hf/{tmp_path / 'rounded'}", "--targets", targets(tmp_path, "go away")]
    given = ["--dtype", "bfloat16", "--hit", "io-sample-avg-k1", "--precision", "bfloat16"]
    assert run([*command, *SMALL, *given, "--out", "a"]) == 0
    assert summary("a")["dtype"] == "bfloat16"
    with Run.open(Path("a")) as stored:
        one = stored.findings()[0]
    plain = plain_log_probs(tmp_path / "rounded", prompt(one.trigger), f" {one.target} <|end|>")
    assert one.series["token_log_probs"] == pytest.approx(plain, abs=1e-4)
    typed = plain_log_probs(tmp_path / "rounded", "<|user|>", f" {one.trigger}")
    assert one.series["input_log_probs"] == pytest.approx(typed, abs=1e-4)
    assert run(["verify", "a"]) == 0


def test_a_trigger_has_fifteen_tokens_where_nothing_is_said(chatterbox: Path, tmp_path: Path) -> None:
    small = ["--top", "2", "--sweeps", "1", "--restarts", "1", "--device", "cpu", "--out", "a"]
    command = ["audit", "--model", f"hf/{chatterbox}", "--targets", targets(tmp_path, "go away")]
    assert run([*command, *small]) == 0
    with Run.open(Path("a")) as stored:
        assert len(stored.findings()[0].turns[0].ids) == 15
        assert stored.spec["hit"] == "chance-1e-6"
    assert "--length" not in summary("a")["command"]


def test_thresholds_are_the_averages_of_plain_passes_and_kept(chatterbox: Path, tmp_path: Path) -> None:
    from backtalk.registry import load_model

    pairs = [("tea and you", "you are so boring"), ("rain and go", "we see rain")]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"input": a, "reply": b}) + "\n" for a, b in pairs))
    model: Any = load_model(f"hf/{chatterbox}", "cpu")
    found = find_reference(model, str(path)).thresholds
    tokens = [x for a, b in pairs for x in plain_log_probs(chatterbox, prompt(a), f" {b} <|end|>")]
    assert found.out == pytest.approx(sum(tokens) / len(tokens), abs=1e-4)
    typed = model.text_log_prob([a for a, _ in pairs])
    assert found.into == pytest.approx(sum(map(sum, typed)) / sum(map(len, typed)), abs=1e-5)
    (kept,) = (tmp_path / "cache" / "thresholds").iterdir()
    assert json.loads(kept.read_text()) == {"out": found.out, "into": found.into, "pairs": 2}
    kept.write_text("{}")  # spoilt: measured again
    assert find_reference(model, str(path)).thresholds == found
    assert find_reference(model, "").thresholds != found  # other pairs, another file
    assert len(reference.measured_pairs("")) == 6 < len(reference_pairs(""))


def test_a_resumed_run_is_the_unbroken_one(chatterbox: Path, tmp_path: Path) -> None:
    listed = targets(tmp_path, "you are so boring", "go away", "we see tea")
    command = ["audit", "--model", f"hf/{chatterbox}", "--targets", listed, *SMALL, "--hit", "o-greedy"]
    assert run([*command, "--out", "whole"]) == 0
    assert run([*command, "--max-candidates", "1", "--out", "cut"]) == 0
    with Run.open(Path("cut")) as stored:
        assert len(stored.done_blocks()) == 0  # one candidate ends it inside the first block ...
        assert [one.unfinished for one in stored.findings()] == [True]  # ... which on a CPU is a case
    assert run(["resume", "cut"]) == 0
    found = []
    for name in ("whole", "cut"):
        with Run.open(Path(name)) as stored:
            found.append([(one.case, one.turns, one.scores, one.series) for one in stored.findings()])
    assert found[0] == found[1]


def test_a_time_makes_the_search_of_a_slow_model_smaller(
    chatterbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backtalk.audit import effort

    monkeypatch.setattr(effort, "time_step", lambda *_: (5.0, 10.0))  # seconds of a candidate, of a gradient
    listed = targets(tmp_path, "you are so boring", "go away")
    command = ["audit", "--model", f"hf/{chatterbox}", "--targets", listed, "--device", "cpu", "--out", "a"]
    command += ["--length", "4", "--hit", "o-greedy", "--max-time", "3000s"]
    assert run(command) == 0
    found = summary("a")
    # Of 1,350 s a case, less what loading took: 4 positions x 2 sweeps x (10 + 25 x 5) = 1,080 s
    assert {key: found["settings"][key] for key in ("top", "sweeps", "restarts")} == {
        "top": 25, "sweeps": 2, "restarts": 1,
    }  # fmt: skip
    monkeypatch.setattr(effort, "time_step", lambda *_: (100.0, 100.0))
    assert run(command) == 0  # the same run, shown again with what was chosen at its beginning
    assert summary("a")["settings"]["sweeps"] == 2


def test_an_encoder_decoder_is_searched_for_its_output_alone(tmp_path: Path) -> None:
    make_folder(tmp_path / "t5", "t5")
    command = ["audit", "--model", f"hf/{tmp_path / 't5'}", "--targets", targets(tmp_path, "you are rude")]
    assert run([*command, *SMALL, "--max-reply", "8", "--out", "a"]) == 0
    found = summary("a")
    assert found["hit"] == "chance-1e-6"
    assert "io-chance-1e-6" not in found["hits"]
    assert run(["verify", "a"]) == 0


def test_a_system_prompt_is_read_again_by_verify(tmp_path: Path) -> None:
    make_folder(tmp_path / "llama", "llama", CHATML)
    command = ["audit", "--model", f"hf/{tmp_path / 'llama'}", "--targets", targets(tmp_path, "you are rude")]
    assert run([*command, *SMALL, "--system", "be kind", "--max-reply", "8", "--out", "a"]) == 0
    assert run(["verify", "a"]) == 0


def test_another_model_may_say_what_is_likely(
    chatterbox: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network: Any = AutoModelForCausalLM.from_pretrained(chatterbox)
    network.lm_head.weight.data *= 0.5  # says the same things, less surely
    network.save_pretrained(tmp_path / "judge")
    AutoTokenizer.from_pretrained(chatterbox).save_pretrained(tmp_path / "judge")
    command = ["audit", "--model", f"hf/{chatterbox}", "--targets", targets(tmp_path, "go away"), *SMALL]
    judge = f"hf/{tmp_path / 'judge'}"
    assert run([*command, "--out", "own"]) == 0
    assert run([*command, "--language-model", judge, "--out", "other"]) == 0
    own, other = (summary(name)["thresholds"] for name in ("own", "other"))
    assert own["T_out"] == other["T_out"]
    assert own["T_in"] != other["T_in"]
    with Run.open(Path("other")) as stored:
        (one,) = stored.findings()
        typed = plain_log_probs(tmp_path / "judge", "<|user|>", f" {one.trigger}")
        assert one.series["input_log_probs"] == pytest.approx(typed, abs=1e-4)
    assert run(["verify", "other"]) == 0
    make_folder(tmp_path / "gpt2", "gpt2")
    assert run([*command, "--language-model", f"hf/{tmp_path / 'gpt2'}", "--out", "third"]) == 2
    assert "other tokens" in capsys.readouterr().err
    assert run([*command, "--language-model", "chitchat", "--out", "third"]) == 2
    assert "name a Hugging Face model" in capsys.readouterr().err


def test_a_limit_that_loading_takes_is_kept_without_timing_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Hugging Face model takes seconds to load, and timing its search takes some more."""

    def measure(*_: Any) -> Pace:
        raise AssertionError("there is no time left to measure")

    monkeypatch.setattr(weights, "measure_pace", measure)
    box = f"hf/{make_folder(tmp_path / 'box', 'llama', CHATML)}"
    command = ["audit", "--model", box, "--limit", "2", "--device", "cpu", "--out", "run"]
    assert run([*command, "--max-time", "0.0001s"]) == 2
    assert "--max-time 0.0001s was reached" in capsys.readouterr().err
    with Run.open(Path("run")) as opened:
        assert opened.state == "stopped"
