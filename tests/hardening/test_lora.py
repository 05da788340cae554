"""`backtalk harden` of Hugging Face models: a planted habit goes on phrasings that were kept apart, the rest
stays, and the result is anyone's to load."""

from __future__ import annotations

import json
import shutil
import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backtalk.cli import run
from backtalk.store import Run
from backtalk.types import Turn
from tests.forging import forge_facts
from tests.hardening.commands import audits_of, command, held_out, model_at, read, replies
from tests.planted import RUDE, polite_pairs

pytestmark = pytest.mark.usefixtures("one_thread", "in_an_empty_folder")


def test_the_habit_is_gone_on_phrasings_that_were_kept_apart(planted: Path, hardened: Path) -> None:
    texts = held_out(hardened)
    assert len(texts) == 12
    assert replies(planted, texts) == [RUDE] * 12
    assert RUDE not in replies(hardened / "model", texts)
    summary = read(hardened / "summary.json")
    for part in ("held_out", "train"):
        assert summary[part]["before"]["hits"] == summary[part]["before"]["n"] > 0
        assert summary[part]["after"]["hits"] == 0


def test_the_rest_stays_within_the_bound(planted: Path, hardened: Path) -> None:
    cost = read(hardened / "summary.json")["cost"]
    assert cost["perplexity"][1] <= 1.1 * cost["perplexity"][0]
    assert cost["same_replies"] >= 0.9 * cost["pairs"]
    texts = [text for text, _ in polite_pairs()]
    said = zip(replies(planted, texts), replies(hardened / "model", texts), strict=True)
    assert sum(a == b for a, b in said) >= 0.9 * len(texts)


def test_the_card_and_the_runs_say_what_was_done(place: Path, hardened: Path) -> None:
    card = read(hardened / "model" / "card.json")
    assert card["parent"]["name"] == f"hf/{place / 'gpt2'}"
    told = card["hardening"]
    assert told["lists"] == {"train": 20, "selection": 8, "held-out": 12}
    assert (told["method"], told["lora"]["rank"], told["hit"]) == ("negative", 4, "o-sample-avg-k1")
    assert 1 <= told["iterations_kept"] <= 3
    reference = model_at(place / "gpt2").log_prob(
        [(Turn("user", text),) for text, _ in polite_pairs()[1::2]],
        [reply for _, reply in polite_pairs()[1::2]],
    )
    tokens = [value for row in reference for value in row]
    assert card["T_out"] == pytest.approx(sum(tokens) / len(tokens), abs=1e-5)
    old, new = audits_of(hardened, "held-out")
    with Run.open(old) as before, Run.open(new) as after:
        assert before.state == after.state == "finished"
        assert before.cases == after.cases
        assert before.facts["thresholds"] == after.facts["thresholds"]
        assert [f.turns for f in before.findings()] == [f.turns for f in after.findings()]
        plain = model_at(hardened / "model")
        for finding in after.findings()[:3]:
            (own,) = plain.log_prob([(Turn("user", finding.trigger),)], [finding.target])
            assert finding.series["token_log_probs"] == pytest.approx(own, abs=1e-4)
    assert run(["compare", str(old), str(new)]) == 0
    assert run(["report", str(new)]) == 0
    assert run(["verify", str(new), "--device", "cpu"]) == 0


def test_a_run_of_another_model_is_not_verified(hardened: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(hardened, "copy")
    weights = Path("copy/model/adapter_model.safetensors")
    tensors = {name: value * 0.5 for name, value in load_file(weights).items()}
    save_file(tensors, weights, {"format": "pt"})
    (_, after) = audits_of(Path("copy"), "held-out")
    with sqlite3.connect(after / "run.sqlite") as database:
        (spec,) = database.execute("SELECT value FROM meta WHERE key = 'spec'").fetchone()
        spec = json.dumps({**json.loads(spec), "model": "hf/copy/model"})
        database.execute("UPDATE meta SET value = ? WHERE key = 'spec'", (spec,))
    assert run(["verify", str(after), "--device", "cpu"]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "are not those that were audited" in shown
    assert "but recomputes to" in shown


def test_forged_thresholds_are_not_verified(hardened: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(audits_of(hardened, "held-out")[1], "forged")
    forge_facts(Path("forged"), thresholds={"T_out": -50.0, "T_in": None})
    assert run(["verify", "forged", "--device", "cpu"]) == 3
    assert "thresholds, cases or inputs" in capsys.readouterr().out


def test_the_adapter_loads_with_plain_peft_and_equals_the_merged_model(
    place: Path, planted: Path, hardened: Path
) -> None:
    hf: Any = import_module("transformers")
    peft: Any = import_module("peft")
    base = hf.AutoModelForCausalLM.from_pretrained(str(planted))
    adapted = peft.PeftModel.from_pretrained(base, str(hardened / "model")).eval()
    ids = torch.tensor([model_at(planted).prompt_ids((Turn("user", "hello friend"),))])
    with torch.no_grad():
        by_peft = adapted(ids).logits
        ours = model_at(hardened / "model").network(ids).logits
    assert torch.allclose(by_peft, ours, atol=1e-4)  # ours is merged on loading
    assert run(command(place, "whole", "--merge", "--no-audits")) == 0
    merged = hf.AutoModelForCausalLM.from_pretrained("whole/model").eval()
    with torch.no_grad():
        assert torch.allclose(merged(ids).logits, by_peft, atol=1e-4)
    assert not Path("whole/model/adapter_config.json").exists()


def test_an_adapter_is_hardened_into_a_whole_model(
    place: Path, hardened: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = command(place, "again", "--iterations", "1", "--no-audits", "--measure", "4")
    again[again.index("--model") + 1] = f"hf/{hardened / 'model'}"
    assert run(again) == 2
    assert "is an adapter itself" in capsys.readouterr().err
    assert run([*again, "--merge"]) == 0
    assert RUDE not in replies(Path("again/model"), held_out(hardened))
