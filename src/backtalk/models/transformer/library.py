"""The transformers library, which is imported when it is needed, and the cache folder.

The cache folder is BACKTALK_CACHE or the platform's usual one. All files in it can be made again.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.models.folder import sha256, write_json

LARGE = 64 << 20
"""Bytes of a file whose hash is cached."""


def load_transformers(extra: str = "hf") -> Any:
    """The module, without its progress bars, which would overwrite ours, and without its warnings."""
    try:
        import transformers
        from transformers.utils import logging
    except ImportError as error:
        raise needs_extra(error, extra) from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    return transformers


def release() -> tuple[int, int]:
    """Major and minor version of the installed library."""
    try:
        major, minor, *_ = version("transformers").split(".")
    except PackageNotFoundError:
        raise needs_extra("it is not installed") from None
    return int(major), int(minor)


def needs_extra(why: object, extra: str = "hf") -> InputError:
    return InputError(f"Hugging Face models need transformers ({why}); pip install 'backtalk[{extra}]'")


def cache_folder() -> Path:
    if given := os.environ.get("BACKTALK_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "backtalk"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "backtalk" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backtalk"


def file_hash(path: Path) -> str:
    """The sha256 of a file. The hash of a large file is cached by the file's size and time."""
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
    with suppress(OSError):  # a cache that can't be written costs only time
        known.parent.mkdir(parents=True, exist_ok=True)
        write_json(known, {**kept, name: {"stamp": stamp, "sha256": digest}})
    return digest
