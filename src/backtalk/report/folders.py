"""Which kind of folder a command left, told by the file that only its kind has; and the pages of those kinds
that have no findings of their own in a database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from backtalk.errors import InputError
from backtalk.report.enumeration_page import render_enumeration
from backtalk.report.hardening_page import render_hardening
from backtalk.report.page import App
from backtalk.report.study_page import render_study
from backtalk.store.folder import DATABASE

Kind = Literal["audit", "hardening", "enumeration", "study", "rating"]
MARKS: dict[str, Kind] = {
    DATABASE: "audit",
    "hardening.json": "hardening",
    "outputs.safetensors": "enumeration",
    "study.json": "study",
    "pairs.jsonl": "rating",
}
MOST_BYTES = 20_000_000
"""A summary that is larger is none of ours."""


def kind_of(folder: Path) -> Kind | None:
    """None where it is no folder of ours."""
    return next((kind for name, kind in MARKS.items() if (folder / name).is_file()), None)


def render_folder(folder: Path, app: App | None = None, links: Sequence[tuple[str, str]] = ()) -> str:
    """The page of a hardening, an enumeration or a study. InputError where there is nothing to show yet."""
    kind = kind_of(folder)
    if kind == "study":
        pages = sorted(path for path in folder.glob("*.md") if path.is_file() and not path.is_symlink())
        if not pages:
            raise InputError(f"{folder} has no page yet; `backtalk study` writes it with its first part")
        return render_study(pages[0], app)
    if kind == "hardening":
        return render_hardening(read_summary(folder), app, links)
    if kind == "enumeration":
        return render_enumeration(read_summary(folder), app)
    raise InputError(f"{folder} is no hardening, enumeration or study")


def read_summary(folder: Path) -> dict[str, Any]:
    """summary.json of a folder that may come from elsewhere."""
    path = folder / "summary.json"
    try:
        if path.is_symlink() or path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is no summary of backtalk's")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} is not finished: it has no summary.json yet") from None
    except (OSError, ValueError):
        raise InputError(f"{path} can't be read") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} is no summary of backtalk's")
    return value
