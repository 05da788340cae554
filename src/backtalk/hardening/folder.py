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
from backtalk.store.typed import read_plain

FACTS = "hardening.json"
CHECKPOINT = "checkpoint.safetensors"
SELECTION = "selection.safetensors"
SUMMARY = "summary.json"
SIDE = "as-it-was.json"
"""What a Hugging Face model's cost is measured against."""
INSTEAD = "instead.jsonl"
"""Harmless replies of the model as it was, which it learns to give in the place of toxic ones."""
AFTER_FRESH, AFTER_ANEW = "after-fresh", "after-anew"
RUNS = ("before", "after", "before-train", "after-train", AFTER_FRESH, AFTER_ANEW)
"""The audits: held-out list and training list, before and after; the same search again, a new adversary."""
LISTS = ("train.jsonl", "selection.jsonl", "held-out.jsonl")
TARGETS = "targets.jsonl"
"""Those of the audit with other seeds."""
PAGES = ("comparison.html", "comparison-train.html")
REPORT = "report.html"
FILES = (CHECKPOINT, SELECTION, SUMMARY, SIDE, INSTEAD, TARGETS, *LISTS, REPORT, *PAGES)
_FOLDERS = ("model", "model" + PARTIAL, *RUNS)
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


def is_proof(folder: Path, fingerprint: str) -> bool:
    """Whether a finished run of the model with that fingerprint lies there. A run of other weights proves
    nothing about these, and is refused."""
    if not Run.exists(folder):
        return False
    with Run.open(folder) as run:
        if run.facts["fingerprint"] != fingerprint:
            raise InputError(
                f"{folder} was made with other weights than the model beside it, so it proves nothing about "
                "it; use --fresh to start anew"
            )
        return run.state == "finished"


def read_summary(out: Path) -> dict[str, Any]:
    """What a hardening came to; it is there once cost is measured."""
    return _read(out / SUMMARY) or {}


def _clear(out: Path) -> None:
    """Removes what a hardening writes, and nothing else; its facts last."""
    runs = [out / name for name in RUNS if Run.exists(out / name)]
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
        return read_plain(path)
    except FileNotFoundError:
        return None
    except InputError as error:
        raise InputError(f"{error}, or use --fresh to start anew") from None
