"""The folder of a hardening: its files, its one writer, and what --fresh removes.

The audits of the hardened model lie in audits/DIGEST, under the digest of its weights: a proof is found by
the weights that it is about, so the proof of other weights can't be taken for theirs.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.models.folder import sha256
from backtalk.output_file import PARTIAL, write_whole
from backtalk.store import Run
from backtalk.store.folder import check_no_other_files, output_folder, writing
from backtalk.store.typed import read_plain

FACTS = "hardening.json"
CHECKPOINT = "checkpoint.safetensors"
SELECTION = "selection.safetensors"
SUMMARY = "summary.json"
MODEL = "model"
SIDE = "cost-before.json"  # the original model's part of the cost
PREFERRED = "preferred.jsonl"  # harmless replies of the original model, which it learns to give
AUDITS, ORIGINAL = "audits", "original"
LISTS = ("train.jsonl", "selection.jsonl", "held-out.jsonl")
REPORT, PAGES = "report.html", ("comparison.html", "comparison-train.html")
FILES = (CHECKPOINT, SELECTION, SUMMARY, SIDE, PREFERRED, *LISTS, REPORT, *PAGES)
_FOLDERS = (MODEL, MODEL + PARTIAL, AUDITS)
_WRITTEN = (FACTS, *FILES, ".*.tmp", *(name + rest for name in _FOLDERS for rest in ("", "/*")))
MEND = "make room, or choose another folder; the same command resumes there"


@contextmanager
def claimed(out: Path, facts: dict[str, Any], fresh: bool) -> Iterator[None]:
    """Makes the folder, or resumes the same hardening, as its only writer."""
    with output_folder(out, "harden", _WRITTEN if fresh else None, mode=0o700):
        if fresh:
            _clear(out)
        if (known := _read(out / FACTS)) is None:
            with writing(out, MEND):
                write_whole(out / FACTS, json.dumps(facts, indent=1) + "\n")
        elif known != facts:
            changed = sorted(key for key in {**known, **facts} if known.get(key) != facts.get(key))
            why = f"{out} holds a hardening with other settings ({', '.join(changed)})"
            raise InputError(f"{why}; use --fresh to start again or --out for another folder")
        yield


def audit_folder(out: Path, whose: str, name: str) -> Path:
    """Of an audit of the original model, or of the one with that digest of its weights."""
    return out / AUDITS / whose[:12] / name


def weights_digest(out: Path, hashed: Callable[[Path], str] = sha256) -> str:
    """Of the hardened model's weights; `hashed` is the digest of a file."""
    files = sorted((out / MODEL).rglob("*.safetensors"))
    told = "".join(f"{file.relative_to(out / MODEL)} {hashed(file)}\n" for file in files)
    return hashlib.sha256(told.encode()).hexdigest()


def read_record(out: Path, hashed: Callable[[Path], str] = sha256) -> dict[str, Any]:
    """summary.json of a finished hardening, which must be about the weights that lie beside it."""
    if (summary := _read(out / SUMMARY)) is None:
        raise InputError(f"{out} is not finished: it has no {SUMMARY} yet; run its command again")
    if summary.get("weights") != weights_digest(out, hashed):
        why = f"the weights in {out / MODEL} are not those that were proven"
        raise InputError(f"{why}; restore them, or start again with `backtalk harden --fresh`")
    return summary


def hardened_name(out: Path, record: Mapping[str, Any]) -> str:
    """The hardened model's name. The one in the record may be of another place, or somebody else's."""
    return f"{'hf/' if record.get('subject') == 'transformer' else ''}{out / MODEL}"


def _clear(out: Path) -> None:
    """Removes what a hardening writes, and nothing else; its facts last."""
    runs = [folder for folder in (out / AUDITS).glob("*/*") if Run.exists(folder)]
    for run in runs:
        check_no_other_files(run)
    for run in runs:
        Run.remove(run)
    for name in _FOLDERS:
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
        raise InputError(f"{error}, or use --fresh to start again") from None
