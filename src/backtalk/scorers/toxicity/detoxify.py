"""Detoxify's 'original' model (Hanu & Unitary, 2020), a BERT trained on the Jigsaw challenge.

`detoxify` takes the checkpoint that the package names, from torch's cache or by a download that is checked
against the hash in its name, and BERT's tokenizer from the hub. `detoxify/FOLDER` fetches nothing: the folder
holds the .ckpt and Hugging Face's config.json and tokenizer files. A checkpoint is a pickle: it is read with
weights_only, which runs no code, and refused where that does not do.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.folder import first_line
from backtalk.scorers.toxicity.sequence import SequenceScorer, choose_label

RENAMED = {"toxic": "toxicity", "identity_hate": "identity_attack", "severe_toxic": "severe_toxicity"}
"""The package's own names for the classes."""
SAFE_WAY = "use hf/unitary/toxic-bert, the same model as safetensors"


def load(name: str, device: str = "auto") -> SequenceScorer:
    """The released model."""
    return _scorer(name, _released(), "", device)


def load_folder(folder: str, device: str = "auto") -> SequenceScorer:
    """The model of a folder; nothing is fetched."""
    return _scorer(f"detoxify/{folder}", _find_checkpoint(Path(folder)), folder, device)


def _scorer(name: str, checkpoint: Path, files: str, device: str) -> SequenceScorer:
    network, tokenizer, classes = read_checkpoint(checkpoint, files)
    label = choose_label(dict(enumerate(classes)), "", str(checkpoint))
    return SequenceScorer(name, network, tokenizer, label, True, pick_device(device))


def read_checkpoint(path: Path, files: str = "") -> tuple[Any, Any, list[str]]:
    """The network, the tokenizer and the classes; `files` is the folder of config and tokenizer, or ""."""
    try:
        import transformers
    except ImportError:
        raise InputError("detoxify needs transformers; pip install 'backtalk[detoxify]'") from None
    try:
        read = torch.load(path, map_location="cpu", weights_only=True)
        made = read["config"]["arch"]["args"]
        classes = [RENAMED.get(name, name) for name in read["config"]["dataset"]["args"]["classes"]]
        weights = read["state_dict"]
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} holds more than weights, so reading it could run code; {SAFE_WAY}"
        ) from None
    except (KeyError, TypeError, RuntimeError, EOFError) as error:
        raise InputError(f"{path} is no checkpoint of Detoxify: {first_line(error)}; {SAFE_WAY}") from None
    if made["model_name"] not in ("BertForSequenceClassification", "AlbertForSequenceClassification"):
        raise InputError(f"{path} is a {made['model_name']}; only 'original' and its small twin are read")
    source: str = files or made["model_type"]
    try:
        kind = getattr(transformers, made["model_name"])
        config = kind.config_class.from_pretrained(source, local_files_only=bool(files))
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=bool(files))
        config.num_labels = len(classes)
        network = kind(config)
        # Older checkpoints also carry the position ids, which are no weights.
        weights = {key: value for key, value in weights.items() if not key.endswith("position_ids")}
        network.load_state_dict(weights)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"Detoxify's model can't be built from {source}: {first_line(error)}") from None
    return network, tokenizer, classes


def _released() -> Path:
    """The checkpoint of the release, from torch's cache or downloaded into it."""
    try:
        from detoxify.detoxify import MODEL_URLS
    except ImportError:
        raise InputError("the scorer detoxify needs its package; pip install 'backtalk[detoxify]'") from None
    address: str = MODEL_URLS["original"]
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    path = folder / address.rsplit("/", 1)[1]
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        expected = path.stem.rsplit("-", 1)[1]  # the first letters of its sha256
        try:
            torch.hub.download_url_to_file(address, str(path), hash_prefix=expected, progress=False)
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"Detoxify's checkpoint can't be fetched ({first_line(error)}); {SAFE_WAY}"
            ) from None
    return path


def _find_checkpoint(folder: Path) -> Path:
    found = sorted(folder.glob("*.ckpt")) if folder.is_dir() else []
    if len(found) != 1 or not (folder / "config.json").is_file():
        raise InputError(
            f"{folder} should be a folder with one .ckpt file, config.json and a tokenizer's files"
        )
    return found[0]
