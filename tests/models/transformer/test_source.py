"""What a name stands for, what is refused, adapters and fingerprints."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backtalk.errors import InputError
from backtalk.models.transformer import library, source
from backtalk.models.transformer.library import cache_folder
from backtalk.models.transformer.loading import load, pick_dtype
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import find_model, load_model
from backtalk.specs import ModelOptions
from backtalk.types import Access, Turn
from tests.models.transformer.tiny import CHATML, make_folder, make_network

ONE = [(Turn("user", "hello there"),)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path_factory.mktemp("cache")))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_access_is_known_before_anything_loads() -> None:
    assert find_model("hf/no/such/folder")[0].access == Access.WEIGHTS
    assert find_model("smollm2")[0].access == Access.WEIGHTS
    assert find_model("hf/gpt2")[1] == "gpt2"


def test_a_folder_by_its_name(tmp_path: Path) -> None:
    model = load_model(f"hf/{make_folder(tmp_path, 'gpt2')}", "cpu", ModelOptions(max_reply=3))
    assert isinstance(model, TransformerModel)
    assert model.name == f"hf/{tmp_path}"
    assert len(model.reply(ONE)) == 1


def test_a_sealed_one_shows_replies_alone(tmp_path: Path) -> None:
    name = f"hf/{make_folder(tmp_path, 'gpt2')}"
    sealed = load_model(f"sealed:{name}", "cpu", ModelOptions(max_reply=5))
    assert sealed.access == Access.TEXT
    assert sealed.reply(ONE) == load_model(name, "cpu", ModelOptions(max_reply=5)).reply(ONE)


def test_other_models_refuse_the_options() -> None:
    with pytest.raises(InputError, match=r"--max-reply.*chitchat"):
        load_model("chitchat", "cpu", ModelOptions(max_reply=5))


@pytest.mark.parametrize("name", ["", "./nowhere", "/no/such/place", "a/b/c"])
def test_no_such_folder(name: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(name))):
        load(name, "cpu")


def test_what_is_not_in_the_hubs_cache_needs_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: the hub's library reads its settings when it is imported."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "backtalk", "chat", "--model", "hf/someone/some-model", "--say", "hello"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "'someone/some-model'" in done.stderr
    assert "hf/FOLDER" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_model_in_the_hubs_cache(tmp_path: Path) -> None:
    """As the hub's library lays it out; its commit stands for its files."""
    made = make_folder(tmp_path / "made", "gpt2")
    commit = "0123456789abcdef0123456789abcdef01234567"
    kept = tmp_path / "hub" / "models--someone--tiny"
    shutil.copytree(made, kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    code = (
        "from backtalk.registry import load_model; from backtalk.types import Turn;"
        "m = load_model('hf/someone/tiny', 'cpu');"
        "print(m.fingerprint, m.network.name_or_path, len(m.reply([(Turn('user', 'hello'),)])))"
    )
    kept_names = {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS"}
    around = {name: value for name, value in os.environ.items() if name in kept_names}
    around |= {"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env=around
    )
    assert done.returncode == 0, done.stderr
    found = source.Source(made, "someone/tiny", commit=commit)
    expected = found.fingerprint(ModelOptions(), torch.float32)
    assert done.stdout.split() == [expected, "someone/tiny", "1"]


def test_pickles_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "gpt2")
    (folder / "pytorch_model.bin").write_bytes(b"")
    load(str(folder), "cpu")  # never read where there are safetensors
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"no safetensors.* run code"):
        load(str(folder), "cpu")
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(InputError, match="has no weights"):
        load(str(folder), "cpu")


def test_what_does_not_reply_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "gpt2")
    change(folder / "config.json", architectures=["GPT2ForSequenceClassification"])
    with pytest.raises(InputError, match=r"\(GPT2ForSequenceClassification\)"):
        load(str(folder), "cpu")
    change(folder / "config.json", architectures=["BertForMaskedLM"], model_type="bert")
    with pytest.raises(InputError, match=r"\(BertForMaskedLM\)"):
        load(str(folder), "cpu")


def test_code_of_a_models_own_is_not_run_unasked(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "gpt2")
    own = {"auto_map": {"AutoConfig": "own.Own"}, "architectures": ["OwnForCausalLM"]}
    change(folder / "config.json", model_type="novel", **own)
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InputError, match=r"--trust-remote-code"):
        load(str(folder), "cpu")
    assert not (tmp_path / "ran").exists()


def test_broken_files_are_one_sentence(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "gpt2")
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="can't be loaded: "):
        load(str(folder), "cpu")
    (folder / "config.json").write_text("[")
    with pytest.raises(InputError, match=r"config\.json can't"):
        load(str(folder), "cpu")
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"it has no config\.json"):
        load(str(folder), "cpu")


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "llama")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load(str(folder), "cpu")


def test_a_reply_has_a_token(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "gpt2")
    with pytest.raises(InputError, match="--max-reply"):
        load(str(folder), "cpu", ModelOptions(max_reply=0))


def test_folders_of_the_other_kind_say_how_they_are_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "hf", "gpt2")
    with pytest.raises(InputError, match="name it hf/"):
        load_model(str(folder), "cpu")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.json").write_text('{"format": "backtalk-model-1"}')
    with pytest.raises(InputError, match="without hf/"):
        load(str(tmp_path / "ours"), "cpu")


def test_without_transformers(tmp_path: Path) -> None:
    (tmp_path / "transformers.py").write_text("raise ImportError('no such thing')")
    folder = make_folder(tmp_path / "model", "gpt2")
    done = subprocess.run(
        [sys.executable, "-m", "backtalk", "chat", "--model", f"hf/{folder}", "--say", "hello"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert "(no such thing)" in done.stderr
    assert "backtalk[hf]" in done.stderr


def test_the_fingerprint_follows_files_and_options(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "first", "llama", CHATML)
    name = str(folder)
    first = load(name, "cpu").fingerprint
    assert first == load(str(shutil.copytree(folder, tmp_path / "copy")), "cpu").fingerprint
    others = [
        load(name, "cpu", options).fingerprint
        for options in (
            ModelOptions(template="plain"),
            ModelOptions(system="be kind"),
            ModelOptions(dtype="bfloat16"),
            ModelOptions(max_reply=41),
        )
    ]
    assert load(name, "cpu", ModelOptions(dtype="float32")).fingerprint == first  # what auto comes to
    network = make_network("llama", 320)
    with torch.no_grad():
        network.lm_head.weight[0, 0] += 1
    network.save_pretrained(folder)
    others.append(load(name, "cpu").fingerprint)
    change(folder / "tokenizer_config.json", model_max_length=77)
    others.append(load(name, "cpu").fingerprint)
    assert len({first, *others}) == 7


def test_the_hash_of_a_large_file_is_kept_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "LARGE", 4)
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    first = library.file_hash(file)
    assert first == hashlib.sha256(b"first").hexdigest()
    kept = cache_folder() / "hashes.json"
    kept.write_text(kept.read_text().replace(first, "what was kept"))
    assert library.file_hash(file) == "what was kept"
    file.write_bytes(b"second")
    assert library.file_hash(file) == hashlib.sha256(b"second").hexdigest()
    monkeypatch.setenv("BACKTALK_CACHE", str(file))  # no folder: nothing can be kept
    assert library.file_hash(file) == hashlib.sha256(b"second").hexdigest()


@pytest.fixture
def adapter(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A LoRA adapter that changes what a tiny llama says."""
    peft = pytest.importorskip("peft", reason="adapters need peft")
    base = make_folder(tmp_path / "base", "llama")
    model = load(str(base), "cpu")
    torch.manual_seed(1)
    task = getattr(request, "param", None)
    settings = peft.LoraConfig(
        r=4, task_type=task, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    lora: Any = peft.get_peft_model(model.network, settings)
    lora.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_is_merged_into_its_base(adapter: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = adapter.parent / "base"
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    model, plain = load(str(adapter), "cpu"), load(str(base), "cpu")
    network: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(adapter))
    ids = torch.tensor([model.prompt_ids(ONE[0]) + model.reply_ids("no")])
    with torch.no_grad():
        log_probs = network(input_ids=ids).logits[0].log_softmax(1)
    expected = [
        float(log_probs[at - 1, ids[0, at]]) for at in range(len(model.prompt_ids(ONE[0])), ids.shape[1])
    ]
    assert model.log_prob(ONE, ["no"])[0] == pytest.approx(expected, abs=1e-4)
    assert plain.log_prob(ONE, ["no"])[0] != pytest.approx(expected, abs=1e-2)
    assert model.fingerprint != plain.fingerprint
    assert model.network.name_or_path == str(base)


@pytest.mark.parametrize("adapter", [None, "CAUSAL_LM"], indirect=True)
def test_a_network_with_an_adapter_that_is_not_merged(adapter: Path) -> None:
    """As training holds it."""
    from peft import PeftModel

    options = ModelOptions(max_reply=4)
    merged, base = (load(str(path), "cpu", options) for path in (adapter, adapter.parent / "base"))
    network: Any = PeftModel.from_pretrained(base.network, str(adapter)).eval()
    apart = replace(base, network=network)
    assert apart.reply(ONE) == merged.reply(ONE)
    assert apart.sample(ONE * 20, range(20)) == merged.sample(ONE * 20, range(20))
    assert apart.log_prob(ONE, ["no"])[0] == pytest.approx(merged.log_prob(ONE, ["no"])[0], abs=1e-4)


def test_an_adapters_base_may_lie_beside_it(adapter: Path) -> None:
    expected = load(str(adapter), "cpu").log_prob(ONE, ["no"])
    change(adapter / "adapter_config.json", base_model_name_or_path="../base")
    assert load(str(adapter), "cpu").log_prob(ONE, ["no"]) == expected


def test_what_an_adapter_names_is_not_fetched(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(adapter / "adapter_config.json", base_model_name_or_path="someone/no-such-model")
    with pytest.raises(InputError, match=r"someone/no-such-model.*`backtalk chat"):
        load(str(adapter), "cpu")
    change(adapter / "adapter_config.json", base_model_name_or_path=None)
    with pytest.raises(InputError, match="base_model_name_or_path"):
        load(str(adapter), "cpu")


def test_numbers_fit_the_device() -> None:
    assert pick_dtype("auto", torch.device("cpu")) == torch.float32
    assert pick_dtype("float16", torch.device("cpu")) == torch.float16
