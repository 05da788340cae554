"""A cache on disk for the hardenings of a study: the encoded pairs, which all of them share.

A file's name is a digest of what it was made from. It is made again when the package has changed since. The
process that makes one holds its lock; the others wait and read it. A kill frees the lock and leaves no
partial file.
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

import backtalk
from backtalk.errors import InputError
from backtalk.hardening.pairs import Kept
from backtalk.models.folder import text_digest
from backtalk.store.folder import file_lock
from backtalk.training.resumable import load_checkpoint, save_checkpoint


class Shared:
    """The folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def recall(self, what: str, of: Callable[[], Mapping[str, Any]], make: Callable[[], Kept]) -> Kept:
        """What `make` gave to whoever was first to ask for `what`, made `of` the same."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds text of a corpus
        path = self.folder / f"{what}-{_digest(of())[:16]}.safetensors"
        with file_lock(path.with_suffix(".lock")):
            found = _read(path)
            if found is None:
                found = make()
                with suppress(InputError):  # no room: the next one works it out again
                    save_checkpoint(path, found[0], {"kept": found[1], "code": code_digest()})
        return found


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
