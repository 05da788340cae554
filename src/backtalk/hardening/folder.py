"""The folder of a hardening: whose it is, the one writer, and what --fresh removes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.store import Run
from backtalk.store.faults import writing
from backtalk.store.folder import PARTIAL, output_folder, refuse_strangers, write_whole

FACTS = "hardening.json"
CHECKPOINT = "checkpoint.safetensors"
SELECTION = "selection.safetensors"
SUMMARY = "summary.json"
SIDE = "as-it-was.json"
"""What a Hugging Face model's cost is measured against."""
INSTEAD = "instead.jsonl"
"""Harmless replies of the model as it was, which it learns to give in the place of toxic ones."""
RUNS = ("before", "after", "before-train", "after-train")
"""The audits: held-out list and training list, before and after."""
ANEW, AFRESH = "after-anew", "after-fresh"
"""The audits with a new adversary, and with other seeds."""
LISTS = ("train.jsonl", "selection.jsonl", "held-out.jsonl")
TARGETS = "targets.jsonl"
"""Those of the audit with other seeds."""
PAGES = ("comparison.html", "comparison-train.html")
REPORT = "report.html"
FILES = (CHECKPOINT, SELECTION, SUMMARY, SIDE, INSTEAD, TARGETS, *LISTS, REPORT, *PAGES)
_FOLDERS = ("model", "model" + PARTIAL, *RUNS, ANEW, AFRESH)
_WRITTEN = (FACTS, *FILES, ".*.tmp", *(name + rest for name in _FOLDERS for rest in ("", "/*")))
_MEND = "make room, or choose another folder; the same command goes on from there"


@contextmanager
def claimed(out: Path, facts: dict[str, Any], fresh: bool) -> Iterator[None]:
    """Makes the folder, or goes on with the same hardening, as its only writer."""
    with output_folder(out, "harden", _WRITTEN if fresh else None, mode=0o700):
        if fresh:
            _clear(out)
        known = _read(out / FACTS)
        if known is None:
            with writing(out, _MEND):
                write_whole(out / FACTS, json.dumps(facts, indent=1) + "\n")
        elif known != facts:
            changed = [key for key in {**known, **facts} if known.get(key) != facts.get(key)]
            raise InputError(
                f"{out} holds a hardening with other settings ({', '.join(sorted(changed))}); "
                "use --fresh to start anew or --out for another folder"
            )
        yield


def read_summary(out: Path) -> dict[str, Any]:
    """What a hardening came to; it is there once cost is measured."""
    return _read(out / SUMMARY) or {}


def _clear(out: Path) -> None:
    """Removes what a hardening writes, and nothing else; its facts last."""
    runs = [out / name for name in (*RUNS, ANEW, AFRESH) if Run.exists(out / name)]
    for run in runs:
        refuse_strangers(run)
    for run in runs:
        Run.remove(run)
    for name in ("model", "model" + PARTIAL):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (*FILES, FACTS):
        (out / name).unlink(missing_ok=True)
        (out / (name + PARTIAL)).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise InputError(f"{path} is damaged; use --fresh to start anew")
    return value
