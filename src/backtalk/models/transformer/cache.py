"""Where what can be made again is kept: BACKTALK_CACHE, or the platform's folder for such files."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    if given := os.environ.get("BACKTALK_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "backtalk"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "backtalk" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backtalk"
