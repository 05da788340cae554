"""A model folder: config.json, vocab.json, model.safetensors, card.json, and the language model under lm/.

Weights are safetensors with the card's sha256. card.json is written last: without it a folder is unfinished.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import Vocabulary
from backtalk.errors import InputError, short_reason
from backtalk.models.device import pick_device
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.output_file import write_whole
from backtalk.specs import check_values
from backtalk.specs.train import TrainSpec
from backtalk.store.typed import read_json, read_record, read_values

FORMAT = "backtalk-model-1"
Network = Seq2Seq | LSTMLanguageModel
Record = dict[str, Any]  # a JSON object
LONGEST = 10_000  # words of an input or a reply


@dataclass(frozen=True)
class TextSettings:
    """How text becomes ids."""

    recipe: str = "he-glass-2019"
    max_input: int = 15
    max_output: int = 20


class FolderConfig(TypedDict):
    format: Literal["backtalk-model-1"]
    kind: Literal["lm", "seq2seq"]
    sizes: dict[str, Any]
    text: dict[str, Any]


class Card(TypedDict, total=False):
    """The fields of a card that are read; it holds more, for people."""

    T_out: float
    T_in: float | None
    test_perplexity: float
    language_model_test_perplexity: float
    spec: dict[str, Any]
    finished: bool
    hardening: dict[str, Any]
    sha256: str


def build_network(kind: str, sizes: dict[str, Any]) -> Network:
    if kind == "lm":
        return LSTMLanguageModel(LanguageModelConfig(**sizes))
    return Seq2Seq(Seq2SeqConfig(**sizes))


def save_folder(
    folder: Path, network: Network, vocabulary: Vocabulary, text: TextSettings, half: bool = False
) -> str:
    """Writes all but the card; returns the sha256 of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "lm" if isinstance(network, LSTMLanguageModel) else "seq2seq"
    config = {"format": FORMAT, "kind": kind, "sizes": asdict(network.config), "text": asdict(text)}
    write_json(folder / "config.json", config)
    vocabulary.save(folder / "vocab.json")
    # named_parameters has a shared embedding once: safetensors refuses two names for one tensor.
    return save_weights(folder, dict(network.named_parameters()), torch.float16 if half else torch.float32)


def save_model(folder: Path, model: LocalModel) -> str:
    """`save_folder` for a whole model; its language model is not written."""
    text = TextSettings(model.recipe.name, model.max_input, model.max_output)
    return save_folder(folder, model.network, model.vocabulary, text)


def save_weights(folder: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> str:
    """Writes model.safetensors; returns its sha256."""
    stored = {name: value.detach().to("cpu", dtype).contiguous() for name, value in tensors.items()}
    # Not save_file: it makes files that only the owner can read, and leaves a temporary one when killed.
    write_whole(folder / "model.safetensors", save(stored))
    return sha256(folder / "model.safetensors")


def write_card(folder: Path, card: dict[str, Any]) -> None:
    write_json(folder / "card.json", card)


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_folder(folder: Path, device: torch.device) -> tuple[Network, Vocabulary, TextSettings, Record]:
    """The network, its words and settings, and the card, all checked."""
    if (folder / "adapter_config.json").is_file():
        raise InputError(f"{folder} is a LoRA adapter; name it hf/{folder}")
    if "model_type" in read_json(folder / "config.json"):
        raise InputError(f"{folder} is a Hugging Face model; name it hf/{folder}")
    config, card, tensors = read_parts(folder, "model", FolderConfig, Card)
    known = [field.name for field in fields(TrainSpec)]  # a spec that extends it has more keys
    spec = {key: value for key, value in card.get("spec", {}).items() if key in known}
    check_values(TrainSpec, spec, str(folder / "card.json"))
    try:
        text = read_record(TextSettings, config["text"], exact=True)
        if not 0 < text.max_input <= LONGEST or not 0 < text.max_output <= LONGEST:
            raise ValueError(f"its lengths should be from 1 to {LONGEST:,} words")
        network = _load_network(config["kind"], config["sizes"], tensors)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{folder} can't be read as a model: {short_reason(error)}") from None
    vocabulary = Vocabulary.load(folder / "vocab.json")
    if len(vocabulary) != network.config.vocabulary:
        raise InputError(f"{folder / 'vocab.json'} has {len(vocabulary)} words, the model another number")
    network.to(device).eval().requires_grad_(False)
    return network, vocabulary, text, card


def read_parts(
    folder: Path, what: str, config_kind: Any, card_kind: Any
) -> tuple[Record, Record, dict[str, Tensor]]:
    """Config, card and weights of a model or a scorer: typed, finite, and with the sha256 of the card."""
    config = read_json(folder / "config.json")
    if (found := config.get("format")) != f"backtalk-{what}-1":
        raise InputError(f"{folder / 'config.json'} is not a {what} of ours (format {found!r})")
    card = read_json(folder / "card.json", card_kind)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise InputError(f"{weights} is missing; the {what} folder is incomplete, train or copy it again")
    if sha256(weights) != card.get("sha256"):
        raise InputError(f"{weights} does not match the sha256 in card.json; the file is damaged or changed")
    try:
        tensors = load_file(weights)
        refuse_broken(tensors.items())
        return read_values(config_kind, config), card, tensors
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{folder} can't be read as a {what}: {short_reason(error)}") from None


def refuse_broken(weights: Iterable[tuple[str, Tensor]]) -> None:
    """ValueError for NaN or infinity: the replies of such a model can't be judged."""
    for name, value in weights:
        if value.is_floating_point() and value.numel() and not torch.stack(value.aminmax()).isfinite().all():
            raise ValueError(f"the weights are broken: {name} holds numbers that are not finite")


def refuse_other_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """ValueError unless the names and shapes are exactly these: a smaller tensor would be broadcast."""
    if odd := sorted(expected.keys() ^ tensors.keys()):
        raise ValueError(f"tensor {odd[0]} is missing or not ours")
    for name, value in expected.items():
        if value.shape != tensors[name].shape:
            raise ValueError(f"{name} is {tuple(tensors[name].shape)}, not {tuple(value.shape)}")


def load_folder(name: str, device: str = "auto") -> LocalModel:
    where, folder = pick_device(device), Path(name)
    network, vocabulary, text, card = open_folder(folder, where)
    if not isinstance(network, Seq2Seq):
        raise InputError(f"{folder} is a language model and can't reply; name the folder of a dialogue model")
    language_model, fingerprint = None, sha256(folder / "model.safetensors")
    if (folder / "lm" / "card.json").is_file():
        found, words, _, _ = open_folder(folder / "lm", where)
        if not isinstance(found, LSTMLanguageModel) or words != vocabulary:
            raise InputError(f"{folder / 'lm'} does not belong to {folder}: other kind or other words")
        language_model = found
        both = fingerprint + sha256(folder / "lm" / "model.safetensors")
        fingerprint = hashlib.sha256(both.encode()).hexdigest()
    recipe, lengths = get_recipe(text.recipe), (text.max_input, text.max_output)
    return LocalModel(name, network, vocabulary, recipe, fingerprint, language_model, card, *lengths)


def load_embedded(name: str, device: str = "auto") -> LocalModel:
    """A model that ships inside the package."""
    with as_file(files("backtalk") / "embedded" / name) as folder:
        model = load_folder(str(folder), device)
    model.name = name
    return model


def _load_network(kind: str, sizes: dict[str, Any], tensors: dict[str, Tensor]) -> Network:
    """First on the meta device: whatever sizes a config names take no memory before they match the file."""
    config = read_record(LanguageModelConfig if kind == "lm" else Seq2SeqConfig, sizes, exact=True)
    least = min(config.vocabulary, config.embedding, config.hidden, config.layers)
    if least < 1 or config.layers > len(tensors) or not 0 <= config.dropout < 1:
        raise ValueError("its config has sizes that no model has")
    with torch.device("meta"):
        refuse_other_shapes(tensors, dict(build_network(kind, asdict(config)).named_parameters()))
    network = build_network(kind, asdict(config))
    network.load_state_dict(tensors, strict=False)  # the file has a shared embedding once
    return network
