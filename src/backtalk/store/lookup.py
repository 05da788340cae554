"""Finding a run: its identity, the runs below a folder, and a name for a new one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.store.database import connect_to_read
from backtalk.store.errors import UNREADABLE, writing
from backtalk.store.folder import check_run_folder
from backtalk.types import Case


def identity_of(spec: Mapping[str, Any], fingerprint: str, cases: Sequence[Case]) -> str:
    """A hash of the spec, the model and the cases: two commands with the same one make the same run."""
    known = [{"kind": case.kind, **asdict(case)} for case in cases]
    said = {"spec": dict(spec), "model": fingerprint, "cases": known}
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def find_run(root: Path, identity: str) -> Path | None:
    """The newest run below `root` with that identity. Damaged runs and other folders are skipped."""
    runs = [(changed, folder) for changed, folder, own in _runs(root) if own == identity]
    return max(runs)[1] if runs else None


def latest_run(root: Path) -> Path:
    """The run below `root` that was started, resumed or ended last."""
    runs = [(changed, folder) for changed, folder, _ in _runs(root)]
    if not runs:
        raise InputError(f"there is no run in {root} yet; `backtalk audit` makes one")
    return max(runs)[1]


def new_run_folder(root: Path, model_name: str, search: str, now: datetime) -> Path:
    """Make and return ROOT/DATE-MODEL-SEARCH, with -2, -3 and so on if that is taken.

    The folder is made here, so that two commands started at once never share one.
    """
    name = f"{now:%Y-%m-%d}-{safe_name(model_name)}-{safe_name(search)}"
    with writing(root, "choose another folder, or make room"):
        root.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = root / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                break
    return folder


def safe_name(name: str) -> str:
    """A part of a folder's name: letters, digits, dots and hyphens, at most 60."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:60].strip("-.") or "unnamed"


def _runs(root: Path) -> Iterator[tuple[str, Path, str]]:
    """(time of the last change, folder, identity) of each run directly below a folder."""
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return
    for folder in folders:
        with suppress(InputError, OSError, *UNREADABLE):
            check_run_folder(folder)
            with closing(connect_to_read(folder)) as database:
                meta = dict(database.execute("SELECT key, value FROM meta"))
            yield str(meta["changed"]), folder, str(meta["identity"])
