"""A model folder: config.json, vocab.json, model.safetensors, card.json, and the language model under lm/.

Weights are safetensors, checked against the card's sha256 at every load. card.json is written last: a folder
without it is an unfinished one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import Vocabulary
from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.output_file import write_whole
from backtalk.specs import check_values
from backtalk.specs.train import TrainSpec
from backtalk.store.typed import read_json, read_record, read_values

FORMAT: Literal["backtalk-model-1"] = "backtalk-model-1"
Network = Seq2Seq | LSTMLanguageModel
LONGEST = 10_000
"""Words of an input or a reply."""


@dataclass(frozen=True)
class TextSettings:
    """How text becomes ids: stored with the model, since it means nothing without."""

    recipe: str = "he-glass-2019"
    max_input: int = 15
    max_output: int = 20


class FolderConfig(TypedDict):
    format: Literal["backtalk-model-1"]
    kind: Literal["lm", "seq2seq"]
    sizes: dict[str, Any]
    text: dict[str, Any]


class Sample(TypedDict):
    input: str
    greedy: str
    sampled: str


class Numbers(TypedDict, total=False):
    T_out: float
    T_in: float | None
    test_perplexity: float
    language_model_test_perplexity: float
    spec: dict[str, Any]
    samples: list[Sample]
    finished: bool
    hardening: dict[str, Any]


class Card(Numbers):
    """What is read of a card; it says more, for people."""

    sha256: str


def build_network(kind: str, sizes: dict[str, Any]) -> Network:
    return network_of(LanguageModelConfig(**sizes) if kind == "lm" else Seq2SeqConfig(**sizes))


def network_of(config: LanguageModelConfig | Seq2SeqConfig) -> Network:
    return LSTMLanguageModel(config) if isinstance(config, LanguageModelConfig) else Seq2Seq(config)


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


def text_digest(path: Path) -> str:
    """The hash of a file, or of all files of a folder with their names."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    found = hashlib.sha256()
    for file in files:
        if file.parent.name != "__pycache__":
            found.update(f"{file.relative_to(path)} {sha256(file)}\n".encode())
    return found.hexdigest()


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
    if "model_type" in read_json(folder / "config.json"):
        raise InputError(f"{folder} is a Hugging Face model; name it hf/{folder}")
    config, card, tensors = read_parts(folder, "model", FolderConfig, Card)
    check_values(TrainSpec, card.get("spec", {}), str(folder / "card.json"))
    try:
        text = read_record(TextSettings, config["text"], exact=True)
        if not 0 < text.max_input <= LONGEST or not 0 < text.max_output <= LONGEST:
            raise ValueError(f"its config reads or writes more than {LONGEST:,} words, or none")
        network = _built(config["kind"], config["sizes"], tensors)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{folder} can't be read as a model: {first_line(error)}") from None
    vocabulary = Vocabulary.load(folder / "vocab.json")
    if len(vocabulary) != network.config.vocabulary:
        raise InputError(f"{folder / 'vocab.json'} has {len(vocabulary)} words, the model another number")
    network.to(device).eval().requires_grad_(False)
    return Opened(network, vocabulary, text, card)


def read_parts(
    folder: Path, what: str, config_kind: Any, card_kind: Any
) -> tuple[dict[str, Any], dict[str, Any], dict[str, torch.Tensor]]:
    """Config, card and weights of a folder of ours, a model's or a scorer's: typed, finite, and the weights
    those that the card was written for."""
    config = read_json(folder / "config.json")
    if config.get("format") != f"backtalk-{what}-1":
        raise InputError(
            f"{folder / 'config.json'} is not a {what} of ours (format {config.get('format')!r})"
        )
    card = read_json(folder / "card.json", card_kind)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise InputError(f"{weights} is missing; the {what} folder is incomplete, train or copy it again")
    if sha256(weights) != card["sha256"]:
        raise InputError(f"{weights} does not match the sha256 in card.json; the file is damaged or changed")
    try:
        tensors = load_file(weights)
        refuse_broken(tensors.items())
        return read_values(config_kind, config), card, tensors
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{folder} can't be read as a {what}: {first_line(error)}") from None


def refuse_broken(weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """ValueError for NaN or infinity: what such a model says can't be judged."""
    for name, value in weights:
        if value.is_floating_point() and value.numel() and not torch.stack(value.aminmax()).isfinite().all():
            raise ValueError(f"the weights are broken: {name} holds numbers that are not finite")


def refuse_other_shapes(tensors: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """ValueError unless each tensor has its name and exactly its shape: a smaller one would be stretched."""
    if odd := sorted(expected.keys() ^ tensors.keys()):
        raise ValueError(f"tensor {odd[0]} is missing or not ours")
    for name, value in expected.items():
        if value.shape != tensors[name].shape:
            raise ValueError(f"{name} is {tuple(tensors[name].shape)}, not {tuple(value.shape)}")


def load_folder(name: str, device: str = "auto") -> LocalModel:
    where = pick_device(device)
    folder = Path(name)
    opened = open_folder(folder, where)
    if not isinstance(opened.network, Seq2Seq):
        raise InputError(f"{folder} is a language model and can't reply; name the folder of a dialogue model")
    language_model = None
    if (folder / "lm" / "card.json").is_file():
        lm = open_folder(folder / "lm", where)
        if not isinstance(lm.network, LSTMLanguageModel) or lm.vocabulary != opened.vocabulary:
            raise InputError(f"{folder / 'lm'} does not belong to {folder}: other kind or other words")
        language_model = lm.network
    return LocalModel(
        name=name,
        network=opened.network,
        vocabulary=opened.vocabulary,
        recipe=get_recipe(opened.text.recipe),
        fingerprint=fingerprint_of(folder),
        language_model=language_model,
        card=opened.card,
        max_input=opened.text.max_input,
        max_output=opened.text.max_output,
    )


def fingerprint_of(folder: Path) -> str:
    """The hash of the weights in a model folder, with those of its language model."""
    own = sha256(folder / "model.safetensors")
    if not (folder / "lm" / "card.json").is_file():
        return own
    beside = sha256(folder / "lm" / "model.safetensors")
    return hashlib.sha256(f"{own}{beside}".encode()).hexdigest()


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


def _built(kind: str, sizes: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Network:
    """The network of a config with its weights. It is sketched without memory first: a config may say any
    size, the file holds what it holds."""
    shape: type[LanguageModelConfig | Seq2SeqConfig] = LanguageModelConfig if kind == "lm" else Seq2SeqConfig
    config = read_record(shape, sizes, exact=True)
    if (
        min(config.vocabulary, config.embedding, config.hidden, config.layers) < 1
        or config.layers > len(tensors)
        or not 0 <= config.dropout < 1
    ):
        raise ValueError("its config has sizes that no model has")
    with torch.device("meta"):
        refuse_other_shapes(tensors, dict(network_of(config).named_parameters()))
    network = network_of(config)
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.copy_(tensors[name])
    return network


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].strip("'\"")
