"""What stands for a model's behaviour: a hash of its weights, tokenizer and settings, and of how it is read.

The hash of a large file is kept in the cache folder, with the file's size and time, so that a model of some
gigabytes is read for it only once. A model of the hub is known by its commit.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from backtalk.models.folder import sha256, write_json
from backtalk.models.transformer.cache import cache_folder
from backtalk.models.transformer.source import Source
from backtalk.specs.model import ModelOptions

LARGE = 64 << 20
"""Bytes of a file whose hash is worth keeping."""
PATTERNS = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py")


def fingerprint(source: Source, options: ModelOptions, dtype: torch.dtype) -> str:
    parts = [_of_folder(source.folder, source.commit if source.adapter is None else "")]
    if source.adapter is not None:
        parts.append(_of_folder(source.adapter, source.commit))
    read = {**asdict(options), "dtype": str(dtype)}
    for name in ("prefix", "suffix"):  # what says nothing leaves no mark
        if not read[name]:
            del read[name]
    return hashlib.sha256(json.dumps([parts, read], sort_keys=True).encode()).hexdigest()


def _of_folder(folder: Path, commit: str) -> list[str]:
    if commit:
        return [commit]
    files = sorted({path for pattern in PATTERNS for path in folder.glob(pattern)})
    return [f"{path.name} {file_hash(path)}" for path in files if path.is_file()]


def file_hash(path: Path) -> str:
    """sha256 of a file; of a large one, remembered as long as its size and time stay."""
    stat = path.stat()
    if stat.st_size < LARGE:
        return sha256(path)
    known = cache_folder() / "hashes.json"
    name, stamp = str(path.resolve()), [stat.st_size, stat.st_mtime_ns]
    kept: dict[str, Any] = {}
    with suppress(OSError, ValueError, TypeError):
        kept = dict(json.loads(known.read_text(encoding="utf-8")))
    match kept.get(name):
        case {"stamp": found, "sha256": str(digest)} if found == stamp:
            return digest
    digest = sha256(path)
    with suppress(OSError):  # a cache that can't be written costs time, nothing else
        known.parent.mkdir(parents=True, exist_ok=True)
        write_json(known, {**kept, name: {"stamp": stamp, "sha256": digest}})
    return digest
