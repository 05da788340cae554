"""A model folder: config.json, vocab.json, model.safetensors, card.json, and the language model under lm/.

Weights are safetensors, checked against the card's sha256 at every load. card.json is written last: a folder
without it is an unfinished one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import Vocabulary
from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.local import LocalModel
from backtalk.models.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.output_file import write_whole

FORMAT = "backtalk-model-1"
Network = Seq2Seq | LSTMLanguageModel


@dataclass(frozen=True)
class TextSettings:
    """How text becomes ids: stored with the model, since it means nothing without."""

    recipe: str = "he-glass-2019"
    max_input: int = 15
    max_output: int = 20


def build_network(kind: str, sizes: dict[str, Any]) -> Network:
    if kind == "lm":
        return LSTMLanguageModel(LanguageModelConfig(**sizes))
    return Seq2Seq(Seq2SeqConfig(**sizes))


def save_folder(
    folder: Path,
    network: Network,
    vocabulary: Vocabulary,
    text: TextSettings,
    half: bool = False,
) -> str:
    """Writes all but the card; returns the sha256 of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "lm" if isinstance(network, LSTMLanguageModel) else "seq2seq"
    config = {"format": FORMAT, "kind": kind, "sizes": asdict(network.config), "text": asdict(text)}
    write_json(folder / "config.json", config)
    vocabulary.save(folder / "vocab.json")
    # Not save_file: its files are for the owner's eyes only, and killed, it leaves one of its own naming.
    write_whole(folder / "model.safetensors", save(_tensors(network, half)))
    return sha256(folder / "model.safetensors")


def write_card(folder: Path, card: dict[str, Any]) -> None:
    write_json(folder / "card.json", card)


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class Opened:
    """A folder's parts, read and checked."""

    network: Network
    vocabulary: Vocabulary
    text: TextSettings
    card: dict[str, Any]


def open_folder(folder: Path, device: torch.device) -> Opened:
    if (folder / "adapter_config.json").is_file():
        raise InputError(f"{folder} is a LoRA adapter; name it hf/{folder}")
    config = read_json(folder / "config.json")
    if "model_type" in config:
        raise InputError(f"{folder} is a Hugging Face model; name it hf/{folder}")
    card = read_json(folder / "card.json")
    if config.get("format") != FORMAT:
        raise InputError(f"{folder / 'config.json'} is not a model of ours (format {config.get('format')!r})")
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise InputError(f"{weights} is missing; the model folder is incomplete, train or copy it again")
    if sha256(weights) != card.get("sha256"):
        raise InputError(f"{weights} does not match the sha256 in card.json; the file is damaged or changed")
    try:
        network = build_network(config["kind"], config["sizes"])
        text = TextSettings(**config["text"])
        tensors = load_file(weights)
        _fill(network, tensors)
    except (SafetensorError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{folder} can't be read as a model: {first_line(error)}") from None
    vocabulary = Vocabulary.load(folder / "vocab.json")
    if len(vocabulary) != network.config.vocabulary:
        raise InputError(f"{folder / 'vocab.json'} has {len(vocabulary)} words, the model another number")
    network.to(device).eval().requires_grad_(False)
    return Opened(network, vocabulary, text, card)


def load_folder(name: str, device: str = "auto") -> LocalModel:
    where = pick_device(device)
    folder = Path(name)
    opened = open_folder(folder, where)
    if not isinstance(opened.network, Seq2Seq):
        raise InputError(f"{folder} is a language model and can't reply; name the folder of a dialogue model")
    language_model = None
    fingerprint = opened.card["sha256"]
    if (folder / "lm" / "card.json").is_file():
        lm = open_folder(folder / "lm", where)
        if not isinstance(lm.network, LSTMLanguageModel) or lm.vocabulary != opened.vocabulary:
            raise InputError(f"{folder / 'lm'} does not belong to {folder}: other kind or other words")
        language_model = lm.network
        fingerprint = hashlib.sha256(f"{fingerprint}{lm.card['sha256']}".encode()).hexdigest()
    return LocalModel(
        name=name,
        network=opened.network,
        vocabulary=opened.vocabulary,
        recipe=get_recipe(opened.text.recipe),
        fingerprint=fingerprint,
        language_model=language_model,
        card=opened.card,
        max_input=opened.text.max_input,
        max_output=opened.text.max_output,
    )


def load_embedded(name: str, device: str = "auto") -> LocalModel:
    """A model that ships inside the package."""
    with as_file(files("backtalk") / "embedded" / name) as folder:
        model = load_folder(str(folder), device)
    model.name = name
    return model


def _tensors(network: nn.Module, half: bool) -> dict[str, torch.Tensor]:
    # A shared embedding appears once: safetensors refuses two names for one tensor.
    named = dict(network.named_parameters())
    dtype = torch.float16 if half else torch.float32
    return {name: value.detach().to("cpu", dtype).contiguous() for name, value in named.items()}


def _fill(network: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    own = dict(network.named_parameters())
    if own.keys() != tensors.keys():
        odd = sorted(own.keys() ^ tensors.keys())[0]
        raise KeyError(f"tensor {odd} is missing or not ours")
    with torch.no_grad():
        for name, value in tensors.items():
            own[name].copy_(value)


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing; is {path.parent} the folder of a finished model?") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read: {first_line(error)}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} should hold a JSON object")
    return value


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].strip("'\"")
