"""The transformers library, which is imported when it is needed, and the cache folder.

The cache folder is BACKTALK_CACHE or ~/.cache/backtalk. All files in it can be made again.
"""

import json
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.models.folder import sha256, write_json

LARGE = 64 << 20  # bytes of a file whose hash is cached


def load_transformers(extra: str = "hf") -> Any:
    """The module, without its progress bars, which would overwrite ours, and without its warnings."""
    try:
        import transformers
        from transformers.utils import logging
    except ImportError as error:
        why = f"Hugging Face models need transformers ({error})"
        raise InputError(f"{why}; pip install 'backtalk[{extra}]'") from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    return transformers


def package_folder(name: str) -> Path | None:
    """The folder of an installed package, found without running its code."""
    spec = find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def cache_folder() -> Path:
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "backtalk"
    return Path(os.environ.get("BACKTALK_CACHE") or usual).expanduser()


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
