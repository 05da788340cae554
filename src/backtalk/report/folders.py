"""The kind of a command's output folder, and the page of a hardening."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from backtalk.errors import InputError
from backtalk.report.hardening_page import render_hardening
from backtalk.report.page import App
from backtalk.store.folder import DATABASE
from backtalk.store.typed import read_plain

Kind = Literal["audit", "hardening", "rating"]
MARKS: dict[str, Kind] = {DATABASE: "audit", "hardening.json": "hardening", "pairs.jsonl": "rating"}
"""The file that only folders of a kind have."""


class NotYet(InputError):
    """There is no result to show so far."""


def kind_of(folder: Path) -> Kind | None:
    """None where it is no folder of ours."""
    return next((kind for name, kind in MARKS.items() if (folder / name).is_file()), None)


def render_folder(folder: Path, app: App | None = None, links: Sequence[tuple[str, str]] = ()) -> str:
    """The page of a hardening. NotYet where there is nothing to show so far."""
    if kind_of(folder) != "hardening":
        raise InputError(f"{folder} is no hardening")
    return render_hardening(read_summary(folder), app, links)


def read_summary(folder: Path) -> dict[str, Any]:
    """summary.json of a folder that may come from elsewhere."""
    try:
        return read_plain(folder / "summary.json")
    except FileNotFoundError:
        raise NotYet(f"{folder} is not finished: it has no summary.json yet") from None
