"""What hardenings of one model work out alike, kept in a folder that they share: the pairs as ids, and the
model's own side of the cost. The rows of a study differ in neither.

A file is known by what it was made of, digests of texts and weights included, and is made anew where the
package has changed since. Who makes one holds its lock, so that others wait for it and read it; a kill frees
the lock and leaves no half of a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import backtalk
from backtalk.errors import InputError
from backtalk.models.folder import sha256
from backtalk.store.folder import one_at_a_time
from backtalk.training.checkpoint import load_checkpoint, save_checkpoint

Kept = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors, and what JSON can hold."""


class Shared:
    """The folder; without one everything is worked out anew."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def recall(self, what: str, of: Callable[[], Mapping[str, Any]], make: Callable[[], Kept]) -> Kept:
        """What `make` gave to whoever was first to ask for `what`, made `of` the same."""
        if self.folder is None:
            return make()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds text of a corpus
        path = self.folder / f"{what}-{_digest(of())[:16]}.safetensors"
        with one_at_a_time(path.with_suffix(".lock")):
            found = _read(path)
            if found is None:
                found = make()
                with suppress(InputError):  # no room: the next one works it out again
                    save_checkpoint(path, found[0], {"kept": found[1], "code": code_digest()})
        return found


NOWHERE = Shared()


def text_digest(path: Path) -> str:
    """Of a file, or of all files of a folder with their names."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    found = hashlib.sha256()
    for file in files:
        if file.parent.name != "__pycache__":
            found.update(f"{file.relative_to(path)} {sha256(file)}\n".encode())
    return found.hexdigest()


@cache
def code_digest() -> str:
    """Of the package as it is, and the torch that it runs on."""
    return f"{torch.__version__} {text_digest(Path(backtalk.__file__).parent)}"


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> Kept | None:
    try:
        stored = load_checkpoint(path)
    except InputError:  # damaged
        return None
    if stored is None or stored[1].get("code") != code_digest():
        return None
    return stored[0], stored[1]["kept"]
