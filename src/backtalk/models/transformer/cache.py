"""The cache folder: BACKTALK_CACHE, or the platform's usual one. What is in it can be made again."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from backtalk.models.folder import sha256, write_json

LARGE = 64 << 20
"""Bytes of a file whose hash is worth keeping."""


def cache_folder() -> Path:
    if given := os.environ.get("BACKTALK_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "backtalk"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "backtalk" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backtalk"


def file_hash(path: Path) -> str:
    """sha256 of a file; that of a large one is kept in the cache with the file's size and time."""
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
