"""The files of `hf/NAME-OR-FOLDER`: a folder, a model of the hub (in its cache), or an adapter with its base
model. Weights are safetensors, never pickle; all is checked before anything heavy is loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from backtalk.errors import InputError
from backtalk.models.transformer import smollm2
from backtalk.models.transformer.library import file_hash, needs_extra
from backtalk.specs.model import ModelOptions
from backtalk.store.typed import read_json
from backtalk.types import Origin, origin_of

ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
WANTED = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken"]
"""Files that a model is read from."""


@dataclass(frozen=True)
class Source:
    """Where a model's files lie."""

    folder: Path
    """Config, tokenizer and weights."""
    base: str
    """The name by which an adapter refers to it."""
    adapter: Path | None = None
    """The folder of a LoRA adapter on top."""
    commit: str = ""
    """Of a model of the hub."""

    def fingerprint(self, options: ModelOptions, dtype: torch.dtype) -> str:
        """A hash of weights, tokenizer and settings, and of the options: whatever changes the replies. Files
        of the hub are known by their commit, which never changes."""
        parts = [_folder_hashes(self.folder, self.commit if self.adapter is None else "")]
        if self.adapter is not None:
            parts.append(_folder_hashes(self.adapter, self.commit))
        read = {**asdict(options), "dtype": str(dtype)}
        for name in ("prefix", "suffix"):
            if not read[name]:
                del read[name]
        return hashlib.sha256(json.dumps([parts, read], sort_keys=True).encode()).hexdigest()


def _folder_hashes(folder: Path, commit: str) -> list[str]:
    if commit:
        return [commit]
    files = sorted({path for pattern in [*WANTED, "*.py"] for path in folder.glob(pattern)})
    return [f"{path.name} {file_hash(path)}" for path in files if path.is_file()]


def smollm2_source() -> Source:
    return Source(smollm2.find_copy(), "smollm2", commit=smollm2.COMMIT)


def find_source(rest: str, with_code: bool = False) -> Source:
    """`with_code` fetches the code of a model of the hub too. A model of the hub is fetched only where the
    user wrote its name: a run folder may name anything."""
    folder = Path(rest).expanduser()
    if rest.strip() and folder.is_dir():
        return _with_adapter(folder) if (folder / ADAPTER).is_file() else _whole(folder)
    if not rest.strip() or rest.startswith((".", "/", "~")) or rest.count("/") > 1 or folder.exists():
        raise InputError(f"no folder of a Hugging Face model at {rest!r}; check the path")
    found = _from_hub(rest, with_code, fetch=origin_of(rest) in (Origin.TYPED, Origin.CONFIG))
    if (found / ADAPTER).is_file():
        return _with_adapter(found, found.name)
    return _whole(found, rest, found.name)


def _whole(folder: Path, base: str = "", commit: str = "") -> Source:
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} is no Hugging Face model: it has no config.json")
    if read_json(folder / "config.json").get("format") == "backtalk-model-1":
        raise InputError(f"{folder} is a model of ours; name it without hf/")
    if not any(folder.glob("*.safetensors")):
        if any(path for pattern in PICKLES for path in folder.glob(pattern)):
            why = f"the weights of {folder} are no safetensors; other files may run code when they are read"
            raise InputError(f"{why}; convert them where that is safe (save_pretrained)")
        raise InputError(f"{folder} has no weights: no .safetensors file")
    return Source(folder, base or str(folder.resolve()), commit=commit)


def _with_adapter(folder: Path, commit: str = "") -> Source:
    base = read_json(folder / ADAPTER).get("base_model_name_or_path")
    if not isinstance(base, str) or not base.strip():
        raise InputError(f"{folder / ADAPTER} does not name its base model (base_model_name_or_path)")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise InputError(f"the adapter {folder} has no {ADAPTER_WEIGHTS}; save it as safetensors")
    under = _base(base, folder)
    return Source(under.folder, under.base, folder, commit)


def _base(name: str, adapter: Path) -> Source:
    if name == "smollm2":
        return smollm2_source()
    for place in (Path(name), adapter / name):
        if (place / "config.json").is_file():
            return _whole(place)
    if Path(name).is_absolute() or name.count("/") > 1:
        raise InputError(f"the base model of the adapter {adapter} is not at {name}")
    try:  # an adapter may name anything: what the user did not name is not fetched
        found = _from_hub(name, False, fetch=False)
    except InputError as error:
        raise InputError(f"the adapter {adapter} needs its base model {name}: {error}") from None
    return _whole(found, name, found.name)


def _from_hub(name: str, with_code: bool, fetch: bool) -> Path:
    """The folder in the hub's cache; its name is the commit."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise needs_extra(error) from None
    wanted, ignored = [*WANTED, *["*.py"] * with_code], ["*/*", "consolidated*"]
    try:
        found = snapshot_download(
            name, allow_patterns=wanted, ignore_patterns=ignored, local_files_only=not fetch
        )
        return Path(found)
    except Exception as error:  # of several libraries: no such name, no leave, no network
        kind = type(error).__name__
        if not fetch:
            mend = f"fetch it first, with `backtalk chat --model hf/{name}`"
            raise InputError(f"it names {name}, which is not on this machine; {mend}") from None
        if kind in {"RepositoryNotFoundError", "HFValidationError", "HfUriError"}:
            raise InputError(f"there is no folder and no model of the hub called {name!r}") from None
        if kind == "GatedRepoError":
            raise InputError(f"the hub asks for a login for {name!r}; log in with its tool") from None
        why = f"{name!r} is no folder here, not in the hub's cache, and the hub can't be reached ({kind})"
        raise InputError(f"{why}; copy the model's folder to this machine and name it hf/FOLDER") from None
