"""`gguf/FILE`: a tiny Llama in a GGUF file gives the numbers of the folder that it was made from, the file is
converted once, and what is no such file is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import find_model, is_transformer, load_model
from backtalk.specs import ModelOptions
from backtalk.types import Turn
from tests.models.transformer.gguf_writer import write_gguf
from tests.models.transformer.tiny import CHATML, make_folder

pytest.importorskip("gguf", reason="gguf is not installed")
ASKED = [(Turn("user", "hello there"),), (Turn("user", "what do you like?"),)]
REPLIES = ["i like cats.", "you are rude."]


def load(name: str) -> TransformerModel:
    found = load_model(name, "cpu", ModelOptions(dtype="float32", max_reply=12))
    assert isinstance(found, TransformerModel)
    return found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def test_it_is_the_model_that_was_written(cache: Path, tmp_path: Path) -> None:
    make_folder(tmp_path / "llama", "llama", CHATML)
    write_gguf(tmp_path / "llama", tmp_path / "tiny.gguf")
    whole, read = load(f"hf/{tmp_path / 'llama'}"), load("gguf/tiny.gguf")
    assert read.reply(ASKED) == whole.reply(ASKED)
    for own, other in zip(read.log_prob(ASKED, REPLIES), whole.log_prob(ASKED, REPLIES), strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    (copy,) = cache.glob("gguf-*")
    before = (copy / "model.safetensors").stat().st_mtime_ns
    assert load("gguf/tiny.gguf").fingerprint == read.fingerprint
    assert (copy / "model.safetensors").stat().st_mtime_ns == before


def test_a_file_without_an_output_layer_shares_its_embedding(cache: Path, tmp_path: Path) -> None:
    make_folder(tmp_path / "llama", "llama", CHATML)
    write_gguf(tmp_path / "llama", tmp_path / "tied.gguf", tied=True)
    network = load("gguf/tied.gguf").network
    assert network.get_output_embeddings().weight is network.get_input_embeddings().weight


def test_it_is_audited_like_a_folder(cache: Path, tmp_path: Path) -> None:
    make_folder(tmp_path / "llama", "llama", CHATML)
    write_gguf(tmp_path / "llama", tmp_path / "tiny.gguf")
    Path("targets.txt").write_text("you are rude\n")
    small = ["--length", "2", "--top", "2", "--sweeps", "1", "--restarts", "1", "--max-reply", "4"]
    Path("pairs.tsv").write_text("hello\ti like cats\n" * 4)
    command = ["audit", "--model", "gguf/tiny.gguf", "--targets", "targets.txt", "--reference", "pairs.tsv"]
    assert run([*command, *small, "--out", "run"]) == 0
    assert run(["verify", "run"]) == 0


def test_what_is_no_whole_gguf_file_is_refused(cache: Path, tmp_path: Path) -> None:
    assert is_transformer("gguf/any.gguf")
    assert find_model("gguf/any.gguf")[1] == "any.gguf"
    Path("text.gguf").write_text("hello")
    Path("cut.gguf").write_bytes(b"GGUF\3\0\0\0")
    for name, why in (("none", "can't be read"), ("text", "no GGUF file"), ("cut", "no whole GGUF file")):
        with pytest.raises(InputError, match=why):
            load(f"gguf/{name}.gguf")
    assert not list(cache.glob("gguf-*"))
