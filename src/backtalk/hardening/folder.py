"""The folder of a hardening: whose it is, the one writer, and what --fresh removes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.store import Run
from backtalk.store.faults import writing
from backtalk.store.folder import LOCK, PARTIAL, lock_folder, write_whole

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
TARGETS = "targets.jsonl"
"""What the same search again looks for."""
LISTS = ("train.jsonl", "selection.jsonl", "held-out.jsonl")
PAGES = ("comparison.html", "comparison-train.html")
REPORT = "report.html"
FILES = (CHECKPOINT, SELECTION, SUMMARY, SIDE, INSTEAD, TARGETS, *LISTS, REPORT, *PAGES)
_MEND = "make room, or choose another folder; the same command goes on from there"


@contextmanager
def claimed(out: Path, facts: dict[str, Any], fresh: bool) -> Iterator[None]:
    """Makes the folder, or goes on with the same hardening, as its only writer."""
    _refuse_what_is_not_ours(out)
    with writing(out, _MEND):
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = lock_folder(out)
    try:
        _refuse_what_is_not_ours(out)
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
    finally:
        os.close(lock)


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


def _refuse_what_is_not_ours(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; name a folder")
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    if FACTS not in names and names - {LOCK, FACTS + PARTIAL}:
        raise InputError(f"--out {out} holds other files; name a new folder")


def _clear(out: Path) -> None:
    """Removes what a hardening writes, and nothing else; its facts last."""
    for name in RUNS:
        if Run.exists(out / name):
            Run.remove(out / name)
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
