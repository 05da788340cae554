"""Finds the files of `hf/NAME-OR-FOLDER`: a folder, a model in the hub's cache, or an adapter with its base
model. Weights are safetensors, never pickle. The files are checked before anything heavy is loaded."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from backtalk.errors import InputError
from backtalk.models.transformer.gguf_file import find_copy, gguf_file, smollm2_file
from backtalk.models.transformer.library import file_hash, load_transformers
from backtalk.specs import ModelOptions
from backtalk.store.typed import read_json
from backtalk.types import Origin, origin_of

ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
WANTED = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken"]  # what a model is read from


@dataclass(frozen=True)
class Source:
    folder: Path  # config, tokenizer and weights
    base: str  # the name by which an adapter refers to the model
    adapter: Path | None = None  # the folder of a LoRA adapter
    commit: str = ""  # of a model of the hub

    def fingerprint(self, options: ModelOptions, dtype: torch.dtype) -> str:
        """A hash of all that changes the replies: weights, tokenizer, settings and options. The commit
        identifies files of the hub."""
        folders = [self.folder] if self.adapter is None else [self.folder, self.adapter]
        commits = [""] * (len(folders) - 1) + [self.commit]
        parts = [_folder_hashes(*pair) for pair in zip(folders, commits, strict=True)]
        read = {**asdict(options), "dtype": str(dtype)}
        read = {key: value for key, value in read.items() if value or key not in ("prefix", "suffix")}
        return hashlib.sha256(json.dumps([parts, read], sort_keys=True).encode()).hexdigest()


def _folder_hashes(folder: Path, commit: str) -> list[str]:
    if commit:
        return [commit]
    files = sorted({path for pattern in [*WANTED, "*.py"] for path in folder.glob(pattern)})
    return [f"{path.name} {file_hash(path)}" for path in files if path.is_file()]


def gguf_source(name: str) -> Source:
    """Of `gguf/FILE`, or of `smollm2`."""
    file = smollm2_file() if name == "smollm2" else gguf_file(name.removeprefix("gguf/"))
    copy, commit = find_copy(file)
    return Source(copy, name if name == "smollm2" else f"gguf/{file.resolve()}", commit=commit)


def find_source(rest: str, with_code: bool = False) -> Source:
    """`with_code` also fetches the code of a model of the hub. A model is fetched only if the user typed its
    name: a run folder may name anything."""
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
    return replace(_base(base, folder), adapter=folder, commit=commit)


def _base(name: str, adapter: Path) -> Source:
    if name == "smollm2" or name.startswith("gguf/"):
        return gguf_source(name)
    for folder in (Path(name), adapter / name):
        if (folder / "config.json").is_file():
            return _whole(folder)
    if Path(name).is_absolute() or name.count("/") > 1:
        raise InputError(f"the base model of the adapter {adapter} is not at {name}")
    try:  # not fetched: an adapter may name anything
        found = _from_hub(name, False, fetch=False)
    except InputError as error:
        raise InputError(f"the adapter {adapter} needs its base model {name}: {error}") from None
    return _whole(found, name, found.name)


def _from_hub(name: str, with_code: bool, fetch: bool) -> Path:
    """The folder in the hub's cache; its name is the commit."""
    load_transformers()  # needs the library of the hub
    from huggingface_hub import snapshot_download

    wanted, ignored = [*WANTED, *["*.py"] * with_code], ["*/*", "consolidated*"]
    how: Any = {"allow_patterns": wanted, "ignore_patterns": ignored, "local_files_only": not fetch}
    try:
        return Path(snapshot_download(name, **how))
    except Exception as error:  # of several libraries: an unknown name, no permission, no network
        if not fetch:
            mend = f"fetch it first, with `backtalk chat --model hf/{name}`"
            raise InputError(f"it names {name}, which is not on this machine; {mend}") from None
        why = f"{name!r} is no folder, and the hub gives no such model ({type(error).__name__})"
        mend = "check the name, log in with the hub's tool, or copy the model's folder here and name it"
        raise InputError(f"{why}; {mend} hf/FOLDER") from None
